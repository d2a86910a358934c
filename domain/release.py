"""Give a job back unharmed: no retry is counted, and it is due at once."""

from datetime import timedelta
from functools import partial
from typing import Any

from sqlalchemy import Connection, Row, func, select, update

from domain.held import UNCLAIMED, Claim, is_of, lock_job, read_attempt, refuse_ended, require_held
from domain.refusals import Tried, try_change
from domain.statuses import AttemptStatus, JobStatus, Task
from domain.tables import attempts, inline, jobs


def release_attempt(connection: Connection, claim: Claim) -> None:
    """End the claimed attempt as RELEASED and its job as PENDING, due now.

    For a shutdown, a lost message, or an embed run that used up half its time. Locks the job. Safe to repeat.

    Raises:
        NotFound, AttemptConflict, AttemptNotCurrent, ClaimLost: the claim does not hold.
    """
    job = lock_job(connection, claim.job_id)
    attempt = read_attempt(connection, claim)
    if attempt.status == AttemptStatus.RELEASED and is_of(attempt, claim):
        return
    refuse_ended(attempt)
    require_held(job, attempt, claim)
    write_release(connection, job, claim.attempt_id)


def write_release(connection: Connection, job: Row[Any], attempt_id: int) -> None:
    """Release a STARTED attempt whose job is locked."""
    connection.execute(
        update(attempts)
        .where(attempts.c.id == attempt_id, attempts.c.claim_token == job.claim_token)
        .values(status=AttemptStatus.RELEASED)
    )
    connection.execute(
        update(jobs)
        .where(jobs.c.id == job.id, jobs.c.claim_token == job.claim_token)
        .values(status=JobStatus.PENDING, next_retry_at=None, **UNCLAIMED)
    )


def release_unbegun(connection: Connection, task: Task, waiting_longer_than: timedelta) -> list[int]:
    """Release every claim of the task that has waited longer than this for its stage to begin; return the job ids.

    For messages that the broker lost: its queue is empty, yet claims wait. Jobs that are locked are passed over,
    and so is one that the database refuses to release, which is logged; a mistake is harmless, since the token of a
    released claim begins nothing.
    """
    waiting = connection.execute(
        select(jobs.c.id)
        .join(attempts, (attempts.c.job_id == jobs.c.id) & (attempts.c.status == inline(AttemptStatus.STARTED)))
        .where(
            jobs.c.status == inline(JobStatus.PROCESSING),
            jobs.c.task == task,
            attempts.c.stage_started_at.is_(None),
            # The job's last change while it waits is its claim, or the hand-over from parse.
            jobs.c.updated_at < func.clock_timestamp() - waiting_longer_than,
        )
        .order_by(jobs.c.id)
        .with_for_update(key_share=True, skip_locked=True, of=jobs)
    ).scalars()
    # Asked again under the lock: a stage may have begun, or its claim changed, while the first answer was made.
    unbegun = connection.execute(
        select(jobs, attempts.c.id.label("attempt_id"))
        .join(attempts, (attempts.c.job_id == jobs.c.id) & (attempts.c.status == inline(AttemptStatus.STARTED)))
        .where(jobs.c.id.in_(waiting.all()), attempts.c.stage_started_at.is_(None))
        .order_by(jobs.c.id)
    ).all()
    return [
        job.id
        for job in unbegun
        if try_change(connection, f"to release job {job.id}", partial(write_release, connection, job, job.attempt_id))
        is Tried.MADE
    ]
