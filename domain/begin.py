"""Begin a stage: from here on the run lease counts, and its expiry is a failure."""

from dataclasses import dataclass
from datetime import timedelta

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
    connection.execute(
        update(attempts)
        .where(attempts.c.id == claim.attempt_id, attempts.c.claim_token == claim.token)
        .values(stage_started_at=func.clock_timestamp(), run_by=run_by)
    )
    connection.execute(
        update(jobs)
        .where(jobs.c.id == claim.job_id, jobs.c.claim_token == claim.token)
        .values(lease_expires_at=func.clock_timestamp() + lease)
    )
    version = connection.execute(
        select(versions, documents.c.name, models.c.name.label("model_name"), models.c.dimensions)
        .join(documents, documents.c.id == versions.c.document_id)
        .join(models, models.c.id == versions.c.model_id)
        .where(versions.c.id == job.version_id)
    ).one()
    return StageRun(
        claim=claim,
        document_id=version.document_id,
        version_id=version.id,
        owner_id=version.owner_id,
        name=version.name,
        stage=VersionStatus(version.status),
        storage_uri=version.storage_uri,
        content_sha256=version.content_sha256,
        media_type=version.media_type,
        size_bytes=version.size_bytes,
        model=Model(version.model_id, version.model_name, version.dimensions),
        attempt_no=attempt.attempt_no,
        retry_count=job.retry_count,
        max_retry_count=job.max_retry_count,
    )
