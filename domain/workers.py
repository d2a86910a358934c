"""Who works: a row per start of a worker, so that a restarted one inherits no claim."""

from collections.abc import Collection

from sqlalchemy import Connection, func, insert, update

from domain.errors import InvalidRequest
from domain.tables import is_storable, workers

MOST_CONCURRENCY = 10_000


def register_worker(connection: Connection, name: str, queues: Collection[str], concurrency: int) -> int:
    """Register a start of a worker; return its id, never used before.

    Args:
        queues: the queues it serves: any of claim, parse, embed.
        concurrency: how many stages it runs at once; at most twice as many jobs are claimed for it.

    Raises:
        InvalidRequest: the name is empty or longer than 255 characters, or the concurrency is not from 1 to 10,000.
    """
    if not 1 <= len(name) <= 255 or not all(map(is_storable, [name, *queues])):
        raise InvalidRequest("a worker's name has 1 to 255 characters, and neither it nor a queue's has a NUL")
    if not 1 <= concurrency <= MOST_CONCURRENCY:
        raise InvalidRequest(f"a worker's concurrency is from 1 to {MOST_CONCURRENCY:,}")
    return connection.execute(
        insert(workers).values(name=name, queues=sorted(queues), concurrency=concurrency).returning(workers.c.id)
    ).scalar_one()


def note_worker_seen(connection: Connection, worker_id: int) -> None:
    """Say that the worker lives; claims count only workers seen in the last 30 seconds."""
    connection.execute(update(workers).where(workers.c.id == worker_id).values(last_seen_at=func.clock_timestamp()))


def note_worker_stopped(connection: Connection, worker_id: int) -> None:
    """Say that the worker stopped in good order; nothing more is claimed for its queues on its account."""
    connection.execute(
        update(workers)
        .where(workers.c.id == worker_id, workers.c.stopped_at.is_(None))
        .values(stopped_at=func.clock_timestamp())
    )
