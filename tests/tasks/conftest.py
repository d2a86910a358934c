"""A database with a claimed document, and this process set up as a pool child would be."""

from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import text

from settings import Settings
from tasks import database as tasks_database
from tasks.app import app
from tests.conftest import Connect, Engines
from tests.domain.indexing import Indexing


@pytest.fixture
def connected(configured: Settings) -> Iterator[Settings]:
    """The engine of this process uses the test's database; it and the app's links are closed after the test."""
    tasks_database.engine.cache_clear()
    yield configured
    tasks_database.engine().dispose()
    tasks_database.engine.cache_clear()
    app.close()


@pytest.fixture
def indexing(connect: Connect) -> Indexing:
    """Steps of a document's life; commit what the code under test, on its own connections, is to see."""
    made = Indexing(connect())
    made.connection.commit()
    return made


@pytest.fixture
def kill_sessions(engines: Engines) -> Callable[[], None]:
    """Ends every session that this process holds as a worker's child would."""

    def kill() -> None:
        with engines.superuser.connect() as connection:
            connection.execute(
                text(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE datname = current_database() AND application_name = 'holdfast' AND pid <> pg_backend_pid()"
                )
            )

    return kill
