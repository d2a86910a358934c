"""Real servers for every test, and connections that cannot hang.

All fixtures of one test speak to the same database: a fresh one where the test asks for ``database`` or
``connect`` (it commits), else one that the whole session shares and nobody commits to.
"""

import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Protocol, TypeVar

import pytest
from psycopg import sql
from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.pool import NullPool

import settings
from embedded.postgres import APPLICATION, DATABASE, OWNER, SUPERUSER
from embedded.servers import Servers, start
from tests import other_servers

# A developer's own settings must reach no test, in this process or in a child: neither those of Holdfast nor
# those that libpq and Celery read for themselves. Not in a fixture: modules may read them on their import.
for _name in list(os.environ):
    if _name.lower() in settings.Settings.model_fields or _name.startswith(("PG", "CELERY_")):
        del os.environ[_name]

STATEMENT_TIMEOUT = "30s"
LOCK_TIMEOUT = "20s"
TEMPLATE = "holdfast_template"
SHARED = "holdfast_shared"


def pytest_configure() -> None:
    """Tidy up on SIGTERM as on Ctrl-C: the servers would outlive a session that is simply ended."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)


@dataclass(frozen=True)
class Database:
    """One migrated database and the ways to reach it; the URLs are SQLAlchemy's, with passwords."""

    name: str
    app_url: URL
    owner_url: URL
    superuser_url: URL

    @classmethod
    def of(cls, servers: Servers, name: str, pooler: int | None = None) -> "Database":
        """``pooler``: the port through which the application role comes, where one stands in between."""
        roles = (APPLICATION, OWNER, SUPERUSER)
        app, *others = (
            make_url(servers.postgres.url(role, name)).set(drivername="postgresql+psycopg") for role in roles
        )
        return cls(name, app.set(port=pooler or app.port), *others)


@dataclass(frozen=True)
class Engines:
    """One engine a role; every connection is new, and gone when it is closed."""

    app: Engine
    owner: Engine
    superuser: Engine

    @classmethod
    def of(cls, database: Database) -> "Engines":
        options = f"-c statement_timeout={STATEMENT_TIMEOUT} -c lock_timeout={LOCK_TIMEOUT}"
        urls = (database.app_url, database.owner_url, database.superuser_url)
        return cls(
            *(
                create_engine(
                    url,
                    isolation_level="READ COMMITTED",
                    poolclass=NullPool,
                    # Nothing prepared on the server: a pooler gives each transaction another one.
                    connect_args={"options": options, "sslmode": "disable", "prepare_threshold": None},
                )
                for url in urls
            )
        )


T = TypeVar("T")


class Connect(Protocol):
    """Opens one more connection, of the application role or of the owner; closed after the test."""

    def __call__(self, *, owner: bool = False) -> Connection: ...


class WaitUntil(Protocol):
    """Asks again and again until the answer is true, and returns it; gives up after ``limit`` seconds."""

    def __call__(self, condition: Callable[[], T], limit: float = 30) -> T: ...


# Waits until the backend of a connection, used in another thread, waits for a lock.
WaitUntilBlocked = Callable[[Connection], None]


def pytest_addoption(parser: pytest.Parser) -> None:
    other_servers.add_options(parser)


@pytest.fixture(scope="session")
def servers(pytestconfig: pytest.Config) -> Iterator[Servers]:
    """PostgreSQL and Valkey for the whole session, as ``python -m embedded up`` starts them."""
    with tempfile.TemporaryDirectory(prefix="holdfast-tests-") as folder, start(Path(folder)) as running:
        if url := pytestconfig.getoption("--postgres-at"):
            other_servers.use_elsewhere(running, url)
        other_servers.set_for_roles(running.postgres, pytestconfig.getoption("--postgres-setting"))
        with running.postgres.connect("postgres") as connection:
            # Copies of the migrated database: a template can have no connections, and tests may use this one.
            for name in (TEMPLATE, SHARED):
                running.postgres.create_database(connection, name, template=DATABASE)
        yield running


@pytest.fixture(scope="session")
def pooler_port(servers: Servers, pytestconfig: pytest.Config) -> Iterator[int | None]:
    """The port of the pooler between the application role and the server; None without one."""
    if not pytestconfig.getoption("--pooler"):
        yield None
        return
    other_servers.set_for_roles(servers.postgres, other_servers.SETTINGS_OF_SESSIONS)
    with other_servers.pooler(servers.postgres) as port:
        yield port


@pytest.fixture(scope="session")
def shared_engines(servers: Servers, pooler_port: int | None) -> Engines:
    """Engines of the database that the whole session shares; they refuse to commit."""
    engines = Engines.of(Database.of(servers, SHARED, pooler_port))
    for engine in (engines.app, engines.owner, engines.superuser):
        event.listen(engine, "commit", _refuse_to_commit)
    return engines


def _refuse_to_commit(_: Connection) -> None:
    raise AssertionError("other tests share this database: a test that commits must ask for `database`")


_database_numbers = count(1)


@pytest.fixture
def database(servers: Servers, pooler_port: int | None) -> Iterator[Database]:
    """A fresh, migrated database of this test alone, for tests that commit."""
    name = f"holdfast_test_{next(_database_numbers)}"
    with servers.postgres.connect("postgres") as connection:
        servers.postgres.create_database(connection, name, template=TEMPLATE)
    yield Database.of(servers, name, pooler_port)
    with servers.postgres.connect("postgres") as connection:
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture
def engines(request: pytest.FixtureRequest) -> Engines:
    """Engines of the test's database: its own if it has one, else the shared one."""
    if "database" in request.fixturenames:
        return Engines.of(request.getfixturevalue("database"))
    shared: Engines = request.getfixturevalue("shared_engines")
    return shared


@pytest.fixture
def connect(database: Database, engines: Engines) -> Iterator[Connect]:
    """A factory of connections that may commit, race and wait for each other."""
    with ExitStack() as opened:

        def connect(*, owner: bool = False) -> Connection:
            engine = engines.owner if owner else engines.app
            return opened.enter_context(closing(engine.connect()))

        yield connect


@pytest.fixture
def connection(engines: Engines) -> Iterator[Connection]:
    """A connection of the application role, in a transaction that is rolled back after the test."""
    yield from _rolled_back(engines.app)


@pytest.fixture
def owner_connection(engines: Engines) -> Iterator[Connection]:
    """Like ``connection``, of the owner role."""
    yield from _rolled_back(engines.owner)


@pytest.fixture
def superuser(engines: Engines) -> Iterator[Connection]:
    """Like ``connection``, of the superuser ``postgres``."""
    yield from _rolled_back(engines.superuser)


def _rolled_back(engine: Engine) -> Iterator[Connection]:
    with engine.connect() as connection:  # closing it rolls back, also when a test took the server away
        connection.begin()
        yield connection


@pytest.fixture(scope="session")
def wait_until() -> WaitUntil:
    """Polling with a generous limit, for everything that takes an unknown time."""

    def wait_until(condition: Callable[[], T], limit: float = 30) -> T:
        deadline = time.monotonic() + limit
        while not (answer := condition()):
            if time.monotonic() > deadline:
                pytest.fail(f"not so after {limit} s: {condition}; the last answer was {answer!r}")
            time.sleep(0.02)
        return answer

    return wait_until


@pytest.fixture
def wait_until_blocked(servers: Servers, wait_until: WaitUntil, pooler_port: int | None) -> Iterator[WaitUntilBlocked]:
    """Waiting for the database to say that a session waits for another, instead of sleeping.

    Behind a pooler a connection does not know which session is its own: any that waits will do.
    """
    with servers.postgres.connect("postgres") as watcher:

        def wait_until_blocked(connection: Connection) -> None:
            pid = connection.connection.driver_connection.info.backend_pid  # type: ignore[union-attr]
            its = "datname = %(database)s" if pooler_port else "pid = %(pid)s"
            waits = sql.SQL(
                "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE {} AND cardinality(pg_blocking_pids(pid)) > 0)"
            ).format(sql.SQL(its))

            def blocked() -> bool:
                row = watcher.execute(waits, {"pid": pid, "database": connection.engine.url.database}).fetchone()
                return bool(row and row[0])

            wait_until(blocked)

        yield wait_until_blocked


@pytest.fixture
def environment(database: Database, servers: Servers, tmp_path: Path) -> dict[str, str]:
    """What a child process needs to use the test's database, an empty broker and a store of its own."""
    servers.valkey.flush()
    store = tmp_path / "documents"
    store.mkdir()
    return servers.env | {
        "DATABASE_URL": servers.postgres.url(APPLICATION, database.name),
        "DATABASE_OWNER_URL": servers.postgres.url(OWNER, database.name),
        "STORAGE_URL": store.as_uri(),
    }


@pytest.fixture
def configured(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[settings.Settings]:
    """The settings of this very process, read from ``environment``; forgotten after the test."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    settings.settings.cache_clear()
    yield settings.settings()
    settings.settings.cache_clear()
