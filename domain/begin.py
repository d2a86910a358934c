"""Begin a stage: from here on the run lease counts, and its expiry is a failure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection, func, select, update

from domain.errors import StageNotDue
from domain.held import Claim, lock_held_job
from domain.statuses import Task, VersionStatus
from domain.tables import attempts, documents, jobs, models, versions


@dataclass(frozen=True, slots=True)
class Model:
    """An embedding model: ``name`` is provider:model, ``dimensions`` the length of its vectors."""

    id: int
    name: str
    dimensions: int


@dataclass(frozen=True, slots=True)
class StageRun:
    """What a stage needs to know of the version it works on."""

    claim: Claim
    document_id: int
    version_id: int
    owner_id: str
    name: str
    stage: VersionStatus
    storage_uri: str
    content_sha256: str | None
    media_type: str | None
    size_bytes: int | None
    model: Model
    attempt_no: int
    retry_count: int
    max_retry_count: int
    lease_expires_at: datetime


def begin_stage(connection: Connection, claim: Claim, task: Task, run_by: int, lease: timedelta) -> StageRun:
    """Begin the claimed job's stage and trade its dispatch lease for the run lease.

    Locks the job only. A message delivered twice begins nothing the second time.

    Args:
        run_by: the id of the worker that runs the stage; another one may have claimed it.
        lease: how long the stage may go without a renewal.

    Raises:
        NotFound, AttemptConflict, AttemptNotCurrent, ClaimLost: the claim does not hold.
        StageNotDue: the stage has begun already, or belongs to the other task.
    """
    job, attempt = lock_held_job(connection, claim)
    if job.task != task:
        raise StageNotDue(claim.job_id, task, f"its stage belongs to task {job.task}")
    if attempt.stage_started_at is not None:
        raise StageNotDue(claim.job_id, task, "the stage has begun already")
    return begin_held(connection, [claim], run_by, lease)[0]


def go_on(connection: Connection, claim: Claim, lease: timedelta) -> StageRun:
    """Go on in the same attempt with the stage that comes now; begin it, unless it has begun already.

    For a worker that takes both tasks and needs no message between them. Locks the job; safe to repeat.

    Raises:
        NotFound, AttemptConflict, AttemptNotCurrent, ClaimLost: the claim does not hold.
    """
    _, attempt = lock_held_job(connection, claim)
    if attempt.stage_started_at is None:
        write_begun(connection, [claim], claim.worker_id, lease)
    return stage_runs(connection, [claim])[0]


def begin_held(connection: Connection, claims: Sequence[Claim], run_by: int, lease: timedelta) -> list[StageRun]:
    """Begin the stages of claims that this transaction holds and that have not begun; in the order of ``claims``."""
    write_begun(connection, claims, run_by, lease)
    return stage_runs(connection, claims)


def write_begun(connection: Connection, claims: Sequence[Claim], run_by: int, lease: timedelta) -> None:
    tokens = [claim.token for claim in claims]
    connection.execute(
        update(attempts)
        .where(attempts.c.claim_token.in_(tokens))
        .values(stage_started_at=func.clock_timestamp(), run_by=run_by)
    )
    connection.execute(
        update(jobs)
        .where(jobs.c.claim_token.in_(tokens), jobs.c.id.in_([claim.job_id for claim in claims]))
        .values(lease_expires_at=func.clock_timestamp() + lease)
    )


def stage_runs(connection: Connection, claims: Sequence[Claim]) -> list[StageRun]:
    rows = connection.execute(
        select(
            versions,
            documents.c.name,
            models.c.name.label("model_name"),
            models.c.dimensions,
            jobs.c.claim_token,
            jobs.c.attempt_no,
            jobs.c.retry_count,
            jobs.c.max_retry_count,
            jobs.c.lease_expires_at,
        )
        .join(versions, versions.c.id == jobs.c.version_id)
        .join(documents, documents.c.id == versions.c.document_id)
        .join(models, models.c.id == versions.c.model_id)
        .where(jobs.c.id.in_([claim.job_id for claim in claims]))
    )
    found = {row.claim_token: row for row in rows}
    return [
        StageRun(
            claim=claim,
            document_id=row.document_id,
            version_id=row.id,
            owner_id=row.owner_id,
            name=row.name,
            stage=VersionStatus(row.status),
            storage_uri=row.storage_uri,
            content_sha256=row.content_sha256,
            media_type=row.media_type,
            size_bytes=row.size_bytes,
            model=Model(row.model_id, row.model_name, row.dimensions),
            attempt_no=row.attempt_no,
            retry_count=row.retry_count,
            max_retry_count=row.max_retry_count,
            lease_expires_at=row.lease_expires_at,
        )
        for claim in claims
        if (row := found.get(claim.token)) is not None
    ]
