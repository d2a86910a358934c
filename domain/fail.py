"""End an attempt in failure: postpone its job, or end job and version too."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, select, update

from domain.complete import make_stale
from domain.errors import InvalidRequest
from domain.failures import Failure, FailureType, clean_error_message
from domain.held import (
    UNCLAIMED,
    Claim,
    is_of,
    lock_document,
    lock_job,
    lock_version,
    read_attempt,
    refuse_ended,
    require_held,
)
from domain.statuses import (
    AttemptStatus,
    DocumentStatus,
    JobStatus,
    Outcome,
    VersionStatus,
)
from domain.tables import JOB_IS_LIVE, attempts, documents, jobs, versions

REASON = re.compile("[A-Z][A-Z0-9_]{0,62}")


@dataclass(frozen=True, slots=True)
class AttemptFailed:
    """The frozen result of a failed attempt: the same on every replay, whatever happened since."""

    job_id: int
    attempt_id: int
    attempt_no: int
    status: AttemptStatus
    failed_stage: VersionStatus
    failure_type: FailureType
    failure_reason: str | None
    error_message: str
    retryable: bool
    outcome: Outcome
    retry_count: int
    max_retry_count: int
    next_retry_at: datetime | None
    failed_at: datetime


def fail_attempt(
    connection: Connection, claim: Claim, failure: Failure, secrets: Collection[str] = ()
) -> AttemptFailed:
    """End the claimed attempt as FAILED; postpone its job, or end job and version too.

    Locks job, version and document, as every end does: of two that race, the second waits, then finds the
    attempt ended. Safe to repeat: the same report (worker, token, type and cleaned message) gets the stored
    result and writes nothing. Whether it is retried, and when, the database decides by its policy rows.

    Args:
        secrets: values that must not appear in the stored message.

    Raises:
        NotFound: no such job, or no such attempt of it.
        AttemptConflict: the attempt already ended another way.
        AttemptNotCurrent: the attempt was released or cancelled.
        ClaimLost: the lease ran out, or another worker holds the job.
        InvalidRequest: the reason is not a word of at most 63 capitals.
    """
    message = clean_error_message(failure.message, fallback=failure.reason or failure.type, secrets=secrets)
    if failure.reason is not None and not REASON.fullmatch(failure.reason):
        raise InvalidRequest(
            f"a failure's reason is a word of at most 63 capitals such as PASSWORD_REQUIRED, not {failure.reason!r}"
        )
    job = lock_job(connection, claim.job_id)
    attempt = read_attempt(connection, claim)
    if (
        attempt.status == AttemptStatus.FAILED
        and is_of(attempt, claim)
        and attempt.failure_type == failure.type
        and attempt.error_message == message
    ):
        return frozen_result(connection, claim.attempt_id)
    refuse_ended(attempt)
    require_held(job, attempt, claim)
    return write_failure(connection, job, claim.attempt_id, failure, message)


def write_failure(
    connection: Connection,
    job: Row[Any],
    attempt_id: int,
    failure: Failure,
    message: str,
    nowait: bool = False,
) -> AttemptFailed:
    """Write the failure of a STARTED attempt whose job is locked; ``nowait`` never waits for another lock."""
    version = lock_version(connection, job.version_id, nowait)
    document = lock_document(connection, job.document_id, nowait)
    connection.execute(
        update(attempts)
        .where(attempts.c.id == attempt_id, attempts.c.claim_token == job.claim_token)
        .values(
            status=AttemptStatus.FAILED,
            failure_type=failure.type,
            failure_reason=failure.reason,
            error_message=message,
            retry_after=failure.retry_after,
        )
    )
    result = frozen_result(connection, attempt_id)  # the database filled in outcome and next_retry_at
    if result.outcome == Outcome.RETRY:
        postpone_job(connection, job, until=result.next_retry_at)
    else:
        end_job(connection, job)
        connection.execute(update(versions).where(versions.c.id == version.id).values(status=VersionStatus.FAILED))
        make_stale(connection, version.id)
        stop_document(connection, document, DocumentStatus.FAILED)
    return result


def postpone_job(connection: Connection, job: Row[Any], until: datetime | None) -> None:
    """PROCESSING → PENDING: give the job back, to run again at ``until``, its attempt's time."""
    connection.execute(
        update(jobs)
        .where(jobs.c.id == job.id, jobs.c.claim_token == job.claim_token)
        .values(
            status=JobStatus.PENDING,
            retry_count=jobs.c.retry_count + 1,
            next_retry_at=until,
            **UNCLAIMED,
        )
    )


def end_job(connection: Connection, job: Row[Any]) -> None:
    """PROCESSING → FAILED."""
    connection.execute(
        update(jobs)
        .where(jobs.c.id == job.id, jobs.c.claim_token == job.claim_token)
        .values(status=JobStatus.FAILED, **UNCLAIMED)
    )


def stop_document(connection: Connection, document: Row[Any], status: DocumentStatus) -> None:
    """PENDING → FAILED or CANCELLED, unless the document is searchable or another version of it may still be.

    The document is locked and this transaction has ended its own job: the live ones left are others'.
    """
    if document.status != DocumentStatus.PENDING:
        return
    live = connection.execute(select(jobs.c.id).where(jobs.c.document_id == document.id, JOB_IS_LIVE).limit(1)).first()
    if live is None:
        connection.execute(update(documents).where(documents.c.id == document.id).values(status=status))


def frozen_result(connection: Connection, attempt_id: int) -> AttemptFailed:
    """The failed attempt as it was recorded."""
    row = connection.execute(select(attempts).where(attempts.c.id == attempt_id)).one()
    return AttemptFailed(
        job_id=row.job_id,
        attempt_id=row.id,
        attempt_no=row.attempt_no,
        status=AttemptStatus(row.status),
        failed_stage=VersionStatus(row.failed_stage),
        failure_type=FailureType(row.failure_type),
        failure_reason=row.failure_reason,
        error_message=row.error_message,
        retryable=row.retryable,
        outcome=Outcome(row.outcome),
        retry_count=row.retry_count,
        max_retry_count=row.max_retry_count,
        next_retry_at=row.next_retry_at,
        failed_at=row.finished_at,
    )
