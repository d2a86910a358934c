"""Who works: a row per start of a worker, by the database's clock."""

import pytest
from sqlalchemy import Connection

from domain.errors import InvalidRequest
from domain.workers import MOST_CONCURRENCY, note_worker_seen, note_worker_stopped, register_worker
from tests.domain.conftest import Force
from tests.domain.indexing import Indexing
from tests.domain.rows import one, row


def test_every_start_of_a_worker_has_an_id_of_its_own(connection: Connection) -> None:
    first, second = (register_worker(connection, "host-1", ["parse", "embed"], 4) for _ in range(2))
    assert first != second
    worker = row(connection, "workers", second)
    assert (worker.name, worker.queues, worker.concurrency) == ("host-1", ["embed", "parse"], 4)
    assert worker.started_at == worker.last_seen_at
    assert worker.stopped_at is None


@pytest.mark.parametrize("name", ["", "a" * 256, "nul\x00", "half \ud800"])
def test_a_name_that_cannot_be_stored_is_refused(connection: Connection, name: str) -> None:
    with pytest.raises(InvalidRequest, match="name"):
        register_worker(connection, name, ["parse"], 1)


def test_a_queue_that_cannot_be_stored_is_refused(connection: Connection) -> None:
    with pytest.raises(InvalidRequest, match="queue"):
        register_worker(connection, "w", ["parse", "\x00"], 1)


@pytest.mark.parametrize("concurrency", [0, -1, MOST_CONCURRENCY + 1, 2**31])
def test_a_concurrency_that_makes_no_sense_is_refused(connection: Connection, concurrency: int) -> None:
    with pytest.raises(InvalidRequest, match="concurrency"):
        register_worker(connection, "w", ["parse"], concurrency)


def test_a_worker_that_is_seen_is_seen_now(committed: Indexing, force: Force) -> None:
    force("UPDATE workers SET last_seen_at = clock_timestamp() - interval '1 hour'")
    note_worker_seen(committed.connection, committed.worker_id)
    age = "SELECT extract(epoch FROM clock_timestamp() - last_seen_at) FROM workers"
    assert one(committed.connection, age) < 60


def test_a_worker_stops_once(connection: Connection) -> None:
    worker = register_worker(connection, "w", ["parse"], 1)
    note_worker_stopped(connection, worker)
    stopped_at = row(connection, "workers", worker).stopped_at
    assert stopped_at is not None
    note_worker_stopped(connection, worker)
    note_worker_seen(connection, worker)
    assert row(connection, "workers", worker).stopped_at == stopped_at


def test_a_worker_that_nobody_knows_is_no_error(connection: Connection) -> None:
    """A supervisor's heartbeat must not fail because somebody tidied up."""
    note_worker_seen(connection, 0)
    note_worker_stopped(connection, 0)
