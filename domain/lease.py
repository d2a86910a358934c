"""Renew the leases of the stages a worker runs, all of them or one."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import Connection, func, select, tuple_, update

from domain.held import Claim, lock_held_job
from domain.statuses import JobStatus
from domain.tables import attempts, jobs


def extend_leases(connection: Connection, claims: Sequence[Claim], lease: timedelta) -> list[Claim]:
    """Renew the run leases of these claims; return the claims that are lost.

    A row that another transaction holds right now is passed over: it is neither renewed nor lost, and the next
    renewal comes a sixth of a lease later. An expired lease is never revived. A claim that waits for its stage
    to begin keeps its dispatch lease.
    """
    if not claims:
        return []
    wanted = [(claim.job_id, claim.worker_id, claim.token) for claim in claims]
    holder = tuple_(jobs.c.id, jobs.c.worker_id, jobs.c.claim_token)
    held = (
        select(jobs.c.id)
        .where(
            holder.in_(wanted),
            jobs.c.lease_expires_at > func.clock_timestamp(),
        )
        .order_by(jobs.c.id)
        .with_for_update(key_share=True, skip_locked=True)
        .cte("held")
    )
    begun = select(attempts.c.job_id).where(
        attempts.c.claim_token.in_([claim.token for claim in claims]),
        attempts.c.stage_started_at.is_not(None),
    )
    connection.execute(
        update(jobs)
        .where(jobs.c.id.in_(select(held.c.id)), jobs.c.id.in_(begun))
        .values(lease_expires_at=func.greatest(jobs.c.lease_expires_at, func.clock_timestamp() + lease))
    )
    # Read after the renewal: a row that was skipped because its owner is just writing to it still holds.
    holding = set(
        connection.execute(
            select(jobs.c.claim_token).where(
                holder.in_(wanted),
                jobs.c.status == JobStatus.PROCESSING,
                jobs.c.lease_expires_at > func.clock_timestamp(),
            )
        ).scalars()
    )
    return [claim for claim in claims if claim.token not in holding]


def extend_lease(connection: Connection, claim: Claim, lease: timedelta) -> datetime:
    """Renew the run lease of one claim; return when it ends now. It only grows, so repeating is safe.

    Locks the job, and so waits for its current change; ``extend_leases`` waits for nobody. A claim whose stage
    has not begun keeps its dispatch lease.

    Raises:
        NotFound, AttemptConflict, AttemptNotCurrent, ClaimLost: the claim does not hold; an expired lease is
            never revived.
    """
    job, attempt = lock_held_job(connection, claim)
    if attempt.stage_started_at is None:
        return job.lease_expires_at  # type: ignore[no-any-return]
    return connection.execute(
        update(jobs)
        .where(jobs.c.id == claim.job_id, jobs.c.claim_token == claim.token)
        .values(lease_expires_at=func.greatest(jobs.c.lease_expires_at, func.clock_timestamp() + lease))
        .returning(jobs.c.lease_expires_at)
    ).scalar_one()  # type: ignore[return-value]
