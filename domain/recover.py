"""Recover what a worker left behind: the claims whose lease ran out."""

from datetime import timedelta
from functools import partial
from typing import Any

from sqlalchemy import Connection, Row, func, select, update

from domain.fail import write_failure
from domain.failures import Failure, FailureType
from domain.held import lock_job
from domain.refusals import Tried, try_change
from domain.release import write_release
from domain.statuses import AttemptStatus, JobStatus
from domain.tables import attempts, inline, jobs

AT_MOST = 20
PUT_OFF = timedelta(minutes=5)


def recover_expired_leases(connection: Connection) -> int:
    """End the attempts of at most 20 expired leases, the oldest first; return how many ended.

    A stage that had begun is a failure, LEASE_EXPIRED; a claim that never began is released and burns no retry.
    Jobs that another transaction holds are passed over, and so are those whose version or document is locked:
    recovery waits for nobody. A row that the database refuses is put five minutes on and logged, so that it
    stops nothing.
    """
    expired = connection.execute(
        select(jobs.c.id)
        .where(jobs.c.status == inline(JobStatus.PROCESSING), jobs.c.lease_expires_at <= func.statement_timestamp())
        .order_by(jobs.c.lease_expires_at)
        .limit(AT_MOST)
        .with_for_update(key_share=True, skip_locked=True)
    ).scalars()
    recovered = 0
    for job_id in expired.all():
        job = lock_job(connection, job_id)
        tried = try_change(connection, f"to recover job {job_id}", partial(end_expired, connection, job))
        if tried is Tried.REFUSED:
            try_change(connection, f"to put off job {job_id}", partial(put_off, connection, job))
        elif tried is Tried.MADE:
            recovered += 1
    return recovered


def end_expired(connection: Connection, job: Row[Any]) -> None:
    attempt = connection.execute(
        select(attempts).where(
            attempts.c.job_id == job.id,
            attempts.c.claim_token == job.claim_token,
            attempts.c.status == AttemptStatus.STARTED,
        )
    ).one_or_none()
    if attempt is None:  # only an owner can have made such a row; the database refuses this and names the rule
        connection.execute(update(jobs).where(jobs.c.id == job.id).values(status=JobStatus.PENDING))
    elif attempt.stage_started_at is None:
        write_release(connection, job, attempt.id)
    else:
        failure = Failure(
            FailureType.WORKER_INTERNAL_ERROR,
            f"worker {attempt.run_by or attempt.worker_id} stopped renewing its lease: "
            "it was killed, or cut off from the database",
            "LEASE_EXPIRED",
        )
        write_failure(connection, job, attempt.id, failure, failure.message, nowait=True)


def put_off(connection: Connection, job: Row[Any]) -> None:
    connection.execute(
        update(jobs).where(jobs.c.id == job.id).values(lease_expires_at=func.clock_timestamp() + PUT_OFF)
    )
