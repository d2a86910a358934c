"""The right to move a job: its claim, and the proof that the claim still holds.

Every write after a claim starts here: the job is locked first, then its attempt and the clock are read, since the
wait for the lock may have outlived the lease, or the attempt.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, func, select

from domain.errors import AttemptConflict, AttemptNotCurrent, ClaimLost, NotFound
from domain.statuses import AttemptStatus, JobStatus
from domain.tables import attempts, documents, jobs, versions


@dataclass(frozen=True, slots=True)
class Claim:
    """What a worker shows to prove that the job is its own. The token fences off every earlier claim."""

    job_id: int
    attempt_id: int
    worker_id: int
    token: UUID


def lock_job(connection: Connection, job_id: int) -> Row[Any]:
    """Lock the job: of two transitions that race, the second waits here.

    Raises:
        NotFound: there is no such job.
    """
    job = connection.execute(select(jobs).where(jobs.c.id == job_id).with_for_update(key_share=True)).one_or_none()
    if job is None:
        raise NotFound("job", job_id)
    return job


def lock_version(connection: Connection, version_id: int, nowait: bool = False) -> Row[Any]:
    """Lock the version, after its job."""
    return connection.execute(
        select(versions).where(versions.c.id == version_id).with_for_update(key_share=True, nowait=nowait)
    ).one()


def lock_versions(connection: Connection, version_ids: Collection[int]) -> dict[int, Row[Any]]:
    """Lock several versions, in the order of their ids, after their jobs; return them by id."""
    rows = connection.execute(
        select(versions).where(versions.c.id.in_(version_ids)).order_by(versions.c.id).with_for_update(key_share=True)
    )
    return {row.id: row for row in rows}


def lock_document(connection: Connection, document_id: int, nowait: bool = False) -> Row[Any]:
    """Lock the document, after its jobs and versions."""
    return connection.execute(
        select(documents).where(documents.c.id == document_id).with_for_update(key_share=True, nowait=nowait)
    ).one()


def read_attempt(connection: Connection, claim: Claim) -> Row[Any]:
    """The claim's attempt and ``lease_over``, by the clock after the lock.

    Raises:
        NotFound: there is no such attempt of this job.
    """
    attempt = connection.execute(
        select(attempts, (jobs.c.lease_expires_at <= func.clock_timestamp()).label("lease_over"))
        .join(jobs, jobs.c.id == attempts.c.job_id)
        .where(attempts.c.id == claim.attempt_id, attempts.c.job_id == claim.job_id)
    ).one_or_none()
    if attempt is None:
        raise NotFound("attempt", f"{claim.attempt_id} of job {claim.job_id}")
    return attempt


def is_of(attempt: Row[Any], claim: Claim) -> bool:
    """Whether the attempt was made for this claim: only its own worker and token may hear how it ended."""
    return bool(attempt.claim_token == claim.token and attempt.worker_id == claim.worker_id)


def refuse_ended(attempt: Row[Any]) -> None:
    """Say why an attempt that is no longer STARTED takes no other end.

    Raises:
        AttemptConflict: it ended INDEXED or FAILED.
        AttemptNotCurrent: it was released or cancelled.
    """
    if attempt.status in (AttemptStatus.INDEXED, AttemptStatus.FAILED):
        raise AttemptConflict(attempt.id, attempt.status)
    if attempt.status != AttemptStatus.STARTED:
        raise AttemptNotCurrent(attempt.id, attempt.status)


def require_held(job: Row[Any], attempt: Row[Any], claim: Claim) -> None:
    """Refuse a claim that lost its job.

    Raises:
        ClaimLost: another worker or token holds the job, or the lease ran out.
    """
    if job.status != JobStatus.PROCESSING or job.claim_token != claim.token or job.worker_id != claim.worker_id:
        raise ClaimLost(claim.job_id, "mismatch")
    if attempt.lease_over:
        raise ClaimLost(claim.job_id, "expired")


def lock_held_job(connection: Connection, claim: Claim) -> tuple[Row[Any], Row[Any]]:
    """Lock the job and prove the claim; return the job and its STARTED attempt.

    Raises:
        NotFound, AttemptConflict, AttemptNotCurrent, ClaimLost: in this order.
    """
    job = lock_job(connection, claim.job_id)
    attempt = read_attempt(connection, claim)
    refuse_ended(attempt)
    require_held(job, attempt, claim)
    return job, attempt


UNCLAIMED: Mapping[str, None] = {"worker_id": None, "claim_token": None, "lease_expires_at": None}
"""What a job's row says when nobody holds it."""
