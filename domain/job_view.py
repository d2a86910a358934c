"""One job as an operator sees it: its row, its attempts and its events; never a claim token."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, and_, or_, select

from domain.errors import NotFound
from domain.history import Attempt, Event, attempt_of, attempt_rows, event_of
from domain.statuses import JobStatus, Task, VersionStatus
from domain.tables import attempts, documents, events, jobs, versions

MOST_SHOWN = 1_000  # of the latest attempts, and of events


@dataclass(frozen=True, slots=True)
class JobView:
    """A job; the rest as in ``embedding_jobs``. ``stage`` is its version's, or where that stopped."""

    job_id: int
    version_id: int
    version_no: int
    document_id: int
    owner_id: str
    name: str
    storage_uri: str
    task: Task
    status: JobStatus
    stage: VersionStatus
    attempt_no: int
    retry_count: int
    max_retry_count: int
    next_retry_at: datetime | None
    due_at: datetime
    worker_id: int | None
    lease_expires_at: datetime | None
    last_failure_type: str | None
    last_failure_reason: str | None
    last_error_message: str | None
    last_failed_at: datetime | None
    created_at: datetime
    updated_at: datetime
    attempts: tuple[Attempt, ...]
    events: tuple[Event, ...]


def job_view(connection: Connection, job_id: int) -> JobView:
    """The job, its attempts and its events, the oldest first.

    Raises:
        NotFound: there is no such job.
    """
    job = connection.execute(
        select(
            jobs,
            documents.c.name,
            versions.c.version_no,
            versions.c.storage_uri,
            versions.c.status.label("version_status"),
            versions.c.stopped_stage,
        )
        .join(versions, versions.c.id == jobs.c.version_id)
        .join(documents, documents.c.id == jobs.c.document_id)
        .where(jobs.c.id == job_id)
    ).one_or_none()
    if job is None:
        raise NotFound("job", job_id)
    tried = connection.execute(
        attempt_rows().where(attempts.c.job_id == job_id).order_by(attempts.c.id.desc()).limit(MOST_SHOWN)
    ).all()
    happened = connection.execute(
        select(events, versions.c.version_no)
        .outerjoin(versions, versions.c.id == events.c.version_id)
        .where(
            events.c.document_id == job.document_id,
            or_(
                events.c.job_id == job_id,
                and_(events.c.version_id == job.version_id, events.c.job_id.is_(None)),
            ),
        )
        .order_by(events.c.id)
        .limit(MOST_SHOWN)
    )
    return JobView(
        job_id=job.id,
        version_id=job.version_id,
        version_no=job.version_no,
        document_id=job.document_id,
        owner_id=job.owner_id,
        name=job.name,
        storage_uri=job.storage_uri,
        task=Task(job.task),
        status=JobStatus(job.status),
        stage=VersionStatus(job.stopped_stage or job.version_status),
        attempt_no=job.attempt_no,
        retry_count=job.retry_count,
        max_retry_count=job.max_retry_count,
        next_retry_at=job.next_retry_at,
        due_at=job.due_at,
        worker_id=job.worker_id,
        lease_expires_at=job.lease_expires_at,
        last_failure_type=job.last_failure_type,
        last_failure_reason=job.last_failure_reason,
        last_error_message=job.last_error_message,
        last_failed_at=job.last_failed_at,
        created_at=job.created_at,
        updated_at=job.updated_at,
        attempts=tuple(attempt_of(row) for row in reversed(tried)),
        events=tuple(event_of(row) for row in happened),
    )
