"""Whatever a session has for defaults, and whatever stands in between: a document's life is the same.

The whole suites of the domain and the database run so under ``make isolation``.
"""

from collections.abc import Iterator
from datetime import timedelta

import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from domain.cancel import cancel_document
from domain.delete import delete_document
from domain.failures import FailureType
from domain.history import history
from domain.refusals import rule_of
from domain.retry import retry_version
from domain.statuses import VersionStatus
from embedded.servers import Servers
from settings import Settings, settings
from tasks import database as tasks_database
from tasks.database import run_transaction
from tests.conftest import Database
from tests.domain.indexing import Indexing
from tests.domain.rows import one, statuses
from tests.invariants import violations
from tests.other_servers import NO_PGBOUNCER, PGBOUNCER, pooler

LEVELS = ["read uncommitted", "read committed", "repeatable read", "serializable"]
TIME_ZONES = ["Asia/Seoul", "America/St_Johns", "Pacific/Kiritimati"]


def engine_with(database: Database, ours: bool, **defaults: str) -> Engine:
    """``ours``: READ COMMITTED is asked for, as tasks.database does."""
    options = " ".join(f"-c {name}={value.replace(' ', chr(92) + ' ')}" for name, value in defaults.items())
    level = {"isolation_level": "READ COMMITTED"} if ours else {}
    arguments = {"options": options, "sslmode": "disable"}
    return create_engine(database.app_url, poolclass=NullPool, connect_args=arguments, **level)


def live(indexing: Indexing) -> None:
    """Every transition, each in its own transaction, and what must be true in between."""
    connection = indexing.connection
    first = indexing.index()
    connection.commit()

    second = indexing.upload(content="1")
    connection.commit()
    failed = indexing.fail(indexing.bring_to(VersionStatus.EMBEDDING))
    connection.commit()
    assert failed.next_retry_at is not None
    assert failed.next_retry_at - failed.failed_at == timedelta(seconds=10)
    due = one(connection, "SELECT next_retry_at FROM embedding_jobs WHERE id = :id", id=failed.job_id)
    assert due == failed.next_retry_at
    cancel_document(connection, first.document_id)
    connection.commit()
    assert statuses(connection, second.version_id) == ("INDEXED", "CANCELLED", "CANCELLED")

    retry_version(connection, second.version_id)
    connection.commit()
    indexing.fail(indexing.bring_to(VersionStatus.STORING), FailureType.DOCUMENT_CONTENT_INVALID)
    connection.commit()
    retry_version(connection, second.version_id)
    connection.commit()
    assert indexing.complete(indexing.bring_to(VersionStatus.STORING)).current
    connection.commit()
    assert statuses(connection, second.version_id) == ("INDEXED", "INDEXED", "INDEXED")
    times = [event.created_at for event in history(connection, first.document_id)]
    assert times == sorted(times)
    assert violations(connection) == []
    delete_document(connection, first.document_id)
    connection.commit()
    assert violations(connection) == []


@pytest.mark.parametrize("level", LEVELS)
def test_the_default_isolation_of_a_session_changes_nothing(database: Database, level: str) -> None:
    engine = engine_with(database, ours=True, default_transaction_isolation=level)
    with engine.connect() as connection:
        assert one(connection, "SHOW default_transaction_isolation") == level
        live(Indexing(connection))


@pytest.mark.parametrize("zone", TIME_ZONES)
def test_the_time_zone_of_a_session_changes_nothing(database: Database, zone: str) -> None:
    engine = engine_with(database, ours=True, timezone=zone)
    with engine.connect() as connection:
        assert one(connection, "SHOW timezone") == zone
        live(Indexing(connection))


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_a_transaction_above_read_committed_is_told_what_is_required(database: Database, level: str) -> None:
    engine = engine_with(database, ours=False, default_transaction_isolation=level)
    with engine.connect() as connection:
        indexing = Indexing(connection)
        indexing.upload()
        with pytest.raises(DBAPIError, match="Use READ COMMITTED") as refused:
            connection.commit()
        assert rule_of(refused.value) == "commits_are_read_committed"


@pytest.fixture
def pooled(servers: Servers, database: Database, environment: dict[str, str]) -> Iterator[int]:
    if PGBOUNCER is None:
        pytest.skip(NO_PGBOUNCER)
    with pooler(servers.postgres) as port:
        environment["DATABASE_URL"] = database.app_url.set(drivername="postgresql", port=port).render_as_string(False)
        yield port


@pytest.fixture
def behind_pooler(pooled: int, configured: Settings) -> Iterator[None]:
    """``tasks.database`` speaks through PgBouncer in transaction mode."""
    tasks_database.engine.cache_clear()
    yield
    tasks_database.engine().dispose()
    tasks_database.engine.cache_clear()


@pytest.mark.usefixtures("behind_pooler")
def test_a_pooler_in_transaction_mode_changes_nothing() -> None:
    with tasks_database.engine().connect() as connection:
        live(Indexing(connection))


@pytest.mark.usefixtures("behind_pooler")
def test_the_timeouts_of_a_transaction_end_with_it_behind_a_pooler() -> None:
    """They are the transaction's own: the pooler gives the session to somebody else after it."""
    shown = "SELECT array_agg(setting) FROM pg_settings WHERE name = ANY (:names) AND setting <> '0'"
    names = ["lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout"]
    assert len(run_transaction(lambda c: one(c, shown, names=names))) == 3
    port = settings().sqlalchemy_url
    other = create_engine(port, poolclass=NullPool, connect_args={"prepare_threshold": None})
    with other.connect() as connection:
        assert connection.execute(text(shown), {"names": names}).scalar_one() is None
