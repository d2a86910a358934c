"""Warm sessions for the tests that roll back: a new backend would compile every trigger again, for each test."""

from collections.abc import Iterator

import pytest
from psycopg import Connection as DriverConnection
from sqlalchemy import Engine, create_engine, event
from sqlalchemy.pool import SingletonThreadPool

from tests.conftest import Engines


@pytest.fixture(scope="session")
def shared_engines(shared_engines: Engines) -> Iterator[Engines]:
    """The engines of the shared database, each with one session that lasts; a rollback leaves nothing in it."""
    engines = Engines(
        *(warm(engine) for engine in (shared_engines.app, shared_engines.owner, shared_engines.superuser))
    )
    yield engines
    for engine in (engines.app, engines.owner, engines.superuser):
        engine.dispose()


def warm(engine: Engine) -> Engine:
    def connect() -> DriverConnection:
        connection = engine.raw_connection()
        driver_connection = connection.driver_connection
        connection.detach()
        assert isinstance(driver_connection, DriverConnection)
        return driver_connection

    # Asked before each use: a test of this process that runs between two of these may have restarted the server.
    pooled = create_engine(engine.url, creator=connect, poolclass=SingletonThreadPool, pool_pre_ping=True)
    event.listen(pooled, "commit", refuse_to_commit)
    return pooled


def refuse_to_commit(_: object) -> None:
    raise AssertionError("other tests share this database: a test that commits must ask for `database`")
