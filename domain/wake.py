"""What a worker's supervisor asks about once a second: is there anything to claim?"""

from collections.abc import Collection
from datetime import timedelta

from sqlalchemy import ColumnElement, Connection, func, or_, select, update

from domain.statuses import JobStatus, Task
from domain.tables import claim_hints, inline, jobs

HINT_INTERVAL = timedelta(milliseconds=500)
"""The fleet as a whole sends at most one hint to claim in this time."""

CLOCK_STEP = timedelta(seconds=5)
"""A hint said to be sent this far ahead was sent before the server's clock was set back; it holds nobody up."""


def something_to_claim(tasks: Collection[Task]) -> ColumnElement[bool]:
    """Whether a job of these tasks is due, or any lease ran out: two looks at the head of an index."""
    due = [
        select(jobs.c.id)
        .where(
            jobs.c.status == inline(JobStatus.PENDING),
            jobs.c.task == task,
            jobs.c.due_at <= func.statement_timestamp(),
        )
        .exists()
        for task in Task
        if task in tasks
    ]
    expired = (
        select(jobs.c.id)
        .where(jobs.c.status == inline(JobStatus.PROCESSING), jobs.c.lease_expires_at <= func.statement_timestamp())
        .exists()
    )
    return or_(*due, expired)


def work_is_due(connection: Connection, tasks: Collection[Task]) -> bool:
    """Whether a claim for these tasks would find something."""
    return bool(connection.execute(select(something_to_claim(tasks))).scalar_one())


def claim_hint_due(connection: Connection, tasks: Collection[Task]) -> bool:
    """Whether this caller should send a hint to claim: True for one caller in half a second, fleet-wide.

    Waits for nobody: while another worker asks, the answer is no.
    """
    turn = (
        select(claim_hints.c.only_row)
        .where(
            or_(
                claim_hints.c.sent_at < func.statement_timestamp() - HINT_INTERVAL,
                claim_hints.c.sent_at > func.statement_timestamp() + CLOCK_STEP,
            ),
            something_to_claim(tasks),
        )
        .with_for_update(skip_locked=True)
    )
    sent = connection.execute(
        update(claim_hints)
        .where(claim_hints.c.only_row.in_(turn))
        .values(sent_at=func.clock_timestamp())
        .returning(claim_hints.c.only_row)
    ).first()
    return sent is not None


def longest_due_seconds(connection: Connection, tasks: Collection[Task]) -> float | None:
    """For how long the oldest due job of these tasks has been due; None where none is."""
    oldest = connection.execute(
        select(func.extract("epoch", func.clock_timestamp() - func.min(jobs.c.due_at))).where(
            jobs.c.status == inline(JobStatus.PENDING),
            jobs.c.task.in_(tasks),
            jobs.c.due_at <= func.statement_timestamp(),
        )
    ).scalar_one()
    return None if oldest is None else float(oldest)
