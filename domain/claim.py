"""Claim due jobs: a new token, the next attempt, and a lease until the stage begins."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from sqlalchemy import BigInteger, Connection, Text, any_, func, insert, literal, select, update

from domain.begin import StageRun, begin_held
from domain.errors import NotFound
from domain.held import Claim
from domain.recover import PUT_OFF, recover_expired_leases
from domain.refusals import Tried, try_change
from domain.statuses import AttemptStatus, JobStatus, Task, VersionStatus
from domain.tables import attempts, inline, jobs, versions, workers
from domain.workers import note_worker_seen

DISPATCH_LEASE = timedelta(minutes=10)
"""How long a claim may wait for its stage to begin: the last resort behind the supervisor's lost-message rule."""

SEEN_WITHIN = timedelta(seconds=30)
"""A worker that has not been seen for this long takes no more work."""


@dataclass(frozen=True, slots=True)
class ClaimedJob:
    """A job that now belongs to ``claim``; its stage may begin."""

    claim: Claim
    task: Task
    stage: VersionStatus
    attempt_no: int
    retry_count: int
    max_retry_count: int
    document_id: int
    version_id: int


def claim_jobs(connection: Connection, worker_id: int, limit: int, tasks: Collection[Task]) -> list[ClaimedJob]:
    """Recover expired leases, then claim up to ``limit`` due jobs of these tasks, the longest due first.

    Locks the jobs, and passes over those that others hold, so any number of claimers may run at once. Of each
    task it takes no more than the workers seen lately can soon begin: twice their summed concurrency, less the
    claims that wait already. (Claims made at the very same time do not see each other, so the bound can be passed
    by a claimer's share for a moment; a token and a lease make that harmless.) While embed is full nothing is
    claimed for parse, whose output would only wait there.

    A job that the database refuses to claim is put five minutes on and logged.

    Raises:
        NotFound: there is no such worker.
    """
    # Asked first: a worker that nobody knows must not make every job look refused.
    if connection.execute(select(workers.c.id).where(workers.c.id == worker_id)).first() is None:
        raise NotFound("worker", worker_id)
    recover_expired_leases(connection)
    free = free_places(connection)
    claimed: list[ClaimedJob] = []
    # Embedding first: what is nearest to being searchable frees its place soonest.
    for task in sorted(set(tasks), key=lambda task: task != Task.EMBED):
        if free[Task.EMBED] <= 0:
            break
        count = min(limit - len(claimed), free[task])
        if count > 0:
            taken = claim_each(connection, worker_id, due_jobs(connection, task, count))
            free[task] -= len(taken)
            claimed += taken
    return claimed


def claim_and_begin(
    connection: Connection, worker_id: int, limit: int, tasks: Collection[Task], lease: timedelta
) -> list[StageRun]:
    """Recover expired leases, then claim due jobs for a worker that begins each at once, and begin them.

    For a worker that asks when it is free, so what the others can soon begin does not bound it. Embedding comes
    first, then the longest due.

    Args:
        lease: how long each stage may go without a renewal.

    Raises:
        NotFound: there is no such worker, or it said that it stopped.
    """
    running = select(workers.c.id).where(workers.c.id == worker_id, workers.c.stopped_at.is_(None))
    if connection.execute(running).first() is None:
        raise NotFound("running worker", worker_id)
    recover_expired_leases(connection)
    claimed: list[ClaimedJob] = []
    for task in sorted(set(tasks), key=lambda task: task != Task.EMBED):
        if len(claimed) < limit:
            claimed += claim_each(connection, worker_id, due_jobs(connection, task, limit - len(claimed)))
    note_worker_seen(connection, worker_id)
    return begin_held(connection, [job.claim for job in claimed], worker_id, lease) if claimed else []


def free_places(connection: Connection) -> dict[Task, int]:
    """How many more jobs of each task the workers seen lately can soon begin."""
    serving = select(
        *(
            func.coalesce(
                func.sum(workers.c.concurrency).filter(literal(task.value, Text) == any_(workers.c.queues)), 0
            )
            for task in Task
        )
    ).where(workers.c.stopped_at.is_(None), workers.c.last_seen_at > func.statement_timestamp() - SEEN_WITHIN)
    waiting = (
        select(jobs.c.task, func.count())
        .join(attempts, attempts.c.job_id == jobs.c.id)
        .where(
            attempts.c.status == inline(AttemptStatus.STARTED),
            attempts.c.stage_started_at.is_(None),
            jobs.c.status == inline(JobStatus.PROCESSING),
        )
        .group_by(jobs.c.task)
    )
    served = dict(zip(Task, connection.execute(serving).one(), strict=True))
    waits = {Task(task): count for task, count in connection.execute(waiting)}
    return {task: 2 * int(served[task]) - waits.get(task, 0) for task in Task}


def due_jobs(connection: Connection, task: Task, count: int) -> Sequence[int]:
    """Lock up to ``count`` due jobs of the task, in the order they became due."""
    return (
        connection.execute(
            select(jobs.c.id)
            .where(
                jobs.c.status == inline(JobStatus.PENDING),
                jobs.c.task == task,
                # Not clock_timestamp(), which is volatile and would keep the planner from the index.
                jobs.c.due_at <= func.statement_timestamp(),
            )
            .order_by(jobs.c.due_at, jobs.c.id)
            .limit(count)
            .with_for_update(key_share=True, skip_locked=True)
        )
        .scalars()
        .all()
    )


def claim_each(connection: Connection, worker_id: int, job_ids: Sequence[int]) -> list[ClaimedJob]:
    """Claim the locked jobs together; where the database refuses, one by one, so that only the bad row stays."""
    if not job_ids:
        return []
    together = partial(write_claims, connection, worker_id, job_ids)
    if try_change(connection, f"to claim {len(job_ids)} jobs at once", together) is Tried.MADE:
        return read_claims(connection, worker_id, job_ids)
    taken: list[int] = []
    for job_id in job_ids:
        tried = try_change(connection, f"to claim job {job_id}", partial(write_claims, connection, worker_id, [job_id]))
        if tried is Tried.MADE:
            taken.append(job_id)
        elif tried is Tried.REFUSED:
            try_change(connection, f"to put off job {job_id}", partial(put_off, connection, job_id))
    return read_claims(connection, worker_id, taken)


def write_claims(connection: Connection, worker_id: int, job_ids: Sequence[int]) -> None:
    """PENDING → PROCESSING, a STARTED attempt each, and UPLOADED → PARSING."""
    connection.execute(
        update(jobs)
        .where(jobs.c.id.in_(job_ids))
        .values(
            status=JobStatus.PROCESSING,
            attempt_no=jobs.c.attempt_no + 1,
            next_retry_at=None,
            worker_id=worker_id,
            claim_token=func.gen_random_uuid(),
            lease_expires_at=func.clock_timestamp() + DISPATCH_LEASE,
        )
    )
    connection.execute(
        insert(attempts).from_select(
            ["job_id", "attempt_no", "worker_id", "claim_token"],
            select(jobs.c.id, jobs.c.attempt_no, literal(worker_id, BigInteger), jobs.c.claim_token).where(
                jobs.c.id.in_(job_ids)
            ),
        )
    )
    connection.execute(
        update(versions)
        .where(
            versions.c.id.in_(select(jobs.c.version_id).where(jobs.c.id.in_(job_ids))),
            versions.c.status == VersionStatus.UPLOADED,
        )
        .values(status=VersionStatus.PARSING)
    )


def read_claims(connection: Connection, worker_id: int, job_ids: Sequence[int]) -> list[ClaimedJob]:
    """What was claimed, in the order of the ids."""
    rows = connection.execute(
        select(jobs, attempts.c.id.label("attempt_id"), versions.c.status.label("stage"))
        .join(attempts, (attempts.c.job_id == jobs.c.id) & (attempts.c.attempt_no == jobs.c.attempt_no))
        .join(versions, versions.c.id == jobs.c.version_id)
        .where(jobs.c.id.in_(job_ids))
    )
    by_id = {row.id: row for row in rows}
    return [
        ClaimedJob(
            claim=Claim(job_id, row.attempt_id, worker_id, row.claim_token),
            task=Task(row.task),
            stage=VersionStatus(row.stage),
            attempt_no=row.attempt_no,
            retry_count=row.retry_count,
            max_retry_count=row.max_retry_count,
            document_id=row.document_id,
            version_id=row.version_id,
        )
        for job_id in job_ids
        if (row := by_id.get(job_id)) is not None
    ]


def put_off(connection: Connection, job_id: int) -> None:
    connection.execute(update(jobs).where(jobs.c.id == job_id).values(next_retry_at=func.clock_timestamp() + PUT_OFF))
