"""This process set up as a pool child would be, with a proxy between it and its servers."""

from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from urllib.parse import urlsplit

import pytest

from domain.policy import FailurePolicy, set_policy
from settings import Settings
from tasks import database as tasks_database
from tests.conftest import Connect
from tests.cuts.proxy import Proxy, postgres_messages, proxy_to, whatever_came
from tests.domain.indexing import Indexing


@pytest.fixture
def to_postgres(environment: dict[str, str]) -> Iterator[Proxy]:
    """The way to PostgreSQL of ``tasks.database``."""
    url = urlsplit(environment["DATABASE_URL"])
    assert url.port is not None
    with proxy_to(url.port, postgres_messages) as proxy:
        # The proxy reads what passes, so it must not be encrypted.
        through = url._replace(netloc=url.netloc.replace(f":{url.port}", f":{proxy.port}"), query="sslmode=disable")
        environment["DATABASE_URL"] = through.geturl()
        yield proxy


@pytest.fixture
def to_redis(environment: dict[str, str]) -> Iterator[Proxy]:
    """The way to the broker."""
    url = urlsplit(environment["REDIS_URL"])
    assert url.port is not None
    with proxy_to(url.port, whatever_came) as proxy:
        through = url._replace(netloc=url.netloc.replace(f":{url.port}", f":{proxy.port}"))
        environment["REDIS_URL"] = through.geturl()
        yield proxy


@pytest.fixture
def through_proxy(to_postgres: Proxy, configured: Settings) -> Iterator[Proxy]:
    """``tasks.database`` speaks through this proxy."""
    tasks_database.engine.cache_clear()
    yield to_postgres
    to_postgres.cut_all()
    tasks_database.engine().dispose()
    tasks_database.engine.cache_clear()


@pytest.fixture
def indexing(connect: Connect) -> Indexing:
    """Prepares documents on a connection that nothing cuts."""
    made = Indexing(connect())
    hour = timedelta(hours=1)  # so that no retry becomes due meanwhile and is claimed for another document
    set_policy(made.connection, FailurePolicy("EMBEDDING_PROVIDER_UNAVAILABLE", True, hour, Decimal(1), hour))
    made.connection.commit()
    return made
