"""Documents at any point of their life, in a transaction that is rolled back or committed for others to see."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import Connection, text

from tests.conftest import Connect, Engines
from tests.domain.indexing import Indexing

# Runs SQL as a superuser for whom no trigger fires and no foreign key holds, and commits it: moves a row in time,
# or makes one that no function would make.
Force = Callable[..., None]


@pytest.fixture
def indexing(connection: Connection) -> Indexing:
    """A model and a worker, in the transaction of ``connection``."""
    return Indexing(connection)


@pytest.fixture
def committed(connect: Connect) -> Indexing:
    """A model and a worker, committed, on a connection of their own."""
    made = Indexing(connect())
    made.connection.commit()
    return made


@pytest.fixture
def force(engines: Engines) -> Iterator[Force]:
    with engines.superuser.connect() as superuser:

        def force(sql: str, **parameters: object) -> None:
            superuser.execute(text("SET session_replication_role = replica"))
            superuser.execute(text(sql), parameters)
            superuser.commit()

        yield force


@pytest.fixture
def seen_for_long(committed: Indexing, force: Force) -> None:
    """The worker counts as seen however long the test takes."""
    force("UPDATE workers SET last_seen_at = clock_timestamp() + interval '1 hour'")


@pytest.fixture
def background() -> Iterator[ThreadPoolExecutor]:
    """Runs what has to wait for another session; a forgotten lock ends it by the session's lock_timeout."""
    with ThreadPoolExecutor(40) as executor:
        yield executor
