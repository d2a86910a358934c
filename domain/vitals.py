"""What a doctor asks: which queues have workers, and what does not get on."""

from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import Connection, Text, any_, func, literal, select

from domain.claim import SEEN_WITHIN
from domain.statuses import AttemptStatus, JobStatus, Task
from domain.tables import attempts, inline, jobs, workers
from domain.wake import longest_due_seconds

QUEUES = ("claim", *(task.value for task in Task))

RECOVERED_WITHIN = timedelta(seconds=60)
"""Some worker recovers an expired lease within about a second; after a minute nobody does."""

BEGUN_WITHIN = timedelta(minutes=5)
"""A claim waits at most for its worker's places; it is given back when its message is lost."""


@dataclass(frozen=True, slots=True)
class Vitals:
    """``places`` of each queue: the stages that workers seen in the last 30 s run at once. Longest waits in seconds."""

    places: dict[str, int]
    longest_due_seconds: dict[Task, float | None]
    expired_leases: int
    claims_not_begun: int


def read_vitals(connection: Connection) -> Vitals:
    """The figures as they are now; a few looks at indexes."""
    places = connection.execute(
        select(
            *(
                func.coalesce(func.sum(workers.c.concurrency).filter(literal(queue, Text) == any_(workers.c.queues)), 0)
                for queue in QUEUES
            )
        ).where(workers.c.stopped_at.is_(None), workers.c.last_seen_at > func.statement_timestamp() - SEEN_WITHIN)
    ).one()
    expired = select(func.count()).where(
        jobs.c.status == inline(JobStatus.PROCESSING),
        jobs.c.lease_expires_at <= func.statement_timestamp() - RECOVERED_WITHIN,
    )
    not_begun = (
        select(func.count())
        .select_from(attempts)
        .join(jobs, jobs.c.id == attempts.c.job_id)
        .where(
            attempts.c.status == inline(AttemptStatus.STARTED),
            attempts.c.stage_started_at.is_(None),
            jobs.c.updated_at < func.statement_timestamp() - BEGUN_WITHIN,
        )
    )
    return Vitals(
        places=dict(zip(QUEUES, (int(count) for count in places), strict=True)),
        longest_due_seconds={task: longest_due_seconds(connection, [task]) for task in Task},
        expired_leases=connection.execute(expired).scalar_one(),
        claims_not_begun=connection.execute(not_begun).scalar_one(),
    )
