"""The engine of this process, and transactions on it.

No session state is used, so that a pooler in transaction mode may stand between: timeouts are set for each
transaction, and nothing is prepared on the server.
"""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from functools import cache
from typing import TypeVar

from billiard.exceptions import SoftTimeLimitExceeded
from celery import signals
from sqlalchemy import Connection, Engine, NullPool, create_engine, text
from sqlalchemy.exc import DBAPIError

from settings import settings

T = TypeVar("T")

LOCK_TIMEOUT = timedelta(seconds=5)
STATEMENT_TIMEOUT = timedelta(seconds=60)
TRIES = 3  # of a transaction that lost a deadlock or a serialization conflict

_SET_TIMEOUTS = text(
    "SELECT set_config('lock_timeout', :lock, true), set_config('statement_timeout', :statement, true)"
)


def connect_args(seconds: int) -> dict[str, object]:
    """What psycopg is told: give up connecting, and a peer that no longer answers, after ``seconds``."""
    return {
        "application_name": "holdfast",
        "prepare_threshold": None,
        "connect_timeout": max(2, seconds),  # libpq takes no less than 2
        "tcp_user_timeout": seconds * 1000,  # ms
        "keepalives_idle": 10,
        "keepalives_interval": 3,
        "keepalives_count": 3,
    }


@cache
def engine() -> Engine:
    """The engine of this process, made when first used.

    A pool child holds one connection, and a second one when it has to report that the first broke.
    """
    return create_engine(
        settings().sqlalchemy_url,
        isolation_level="READ COMMITTED",
        pool_pre_ping=True,
        pool_size=1,
        max_overflow=1,
        pool_timeout=10,
        hide_parameters=True,  # an error's text must hold no document text
        connect_args=connect_args(10),
    )


def single_connection_engine(seconds: int) -> Engine:
    """An engine without a pool, for a thread that keeps its one connection and must never wait long."""
    return create_engine(
        settings().sqlalchemy_url,
        isolation_level="READ COMMITTED",
        poolclass=NullPool,
        hide_parameters=True,
        connect_args=connect_args(seconds),
    )


@contextmanager
def transaction(
    connection: Connection | None = None,
    lock_timeout: timedelta = LOCK_TIMEOUT,
    statement_timeout: timedelta = STATEMENT_TIMEOUT,
) -> Iterator[Connection]:
    """One transaction: committed at the end, rolled back by an exception. Repeats nothing.

    Args:
        connection: begin on this one, which stays open; default is one of this process's engine.
    """
    if connection is None:
        with engine().connect() as own, transaction(own, lock_timeout, statement_timeout):
            yield own
        return
    try:
        with connection.begin():
            timeouts = {"lock": _milliseconds(lock_timeout), "statement": _milliseconds(statement_timeout)}
            connection.execute(_SET_TIMEOUTS, timeouts)
            yield connection
    except SoftTimeLimitExceeded:
        # It struck anywhere, perhaps between a query and its answer: this connection is not to be used again.
        connection.invalidate()
        raise


def short_transaction(connection: Connection) -> AbstractContextManager[Connection]:
    """A transaction for the supervisor thread, which must renew leases and cannot wait long for anything."""
    return transaction(connection, timedelta(seconds=1), timedelta(seconds=4))


def run_transaction(work: Callable[[Connection], T]) -> T:
    """Run ``work`` in a transaction; repeat it when it lost a deadlock or a serialization conflict.

    Repeated three times at most, after a random pause. Nothing else is repeated: a query that was too slow
    (57014) would only be slow again.
    """
    for tries_left in reversed(range(TRIES)):
        try:
            with transaction() as connection:
                return work(connection)
        except DBAPIError as error:
            if not tries_left or sqlstate(error) not in ("40001", "40P01"):
                raise
            time.sleep(random.uniform(0.05, 0.3))  # noqa: S311 - spreads the rivals, guards nothing
    raise AssertionError("unreachable")


def sqlstate(error: BaseException) -> str | None:
    """The five characters PostgreSQL gave for ``error``; None where the server never answered."""
    return getattr(getattr(error, "orig", error), "sqlstate", None)


def _milliseconds(duration: timedelta) -> str:
    return str(int(duration.total_seconds() * 1000))


@signals.worker_process_init.connect
def forget_the_parents_connections(**_signal: object) -> None:
    """A forked child must not speak on its parent's sockets, nor close them."""
    if engine.cache_info().currsize:
        engine().dispose(close=False)
    engine.cache_clear()


@signals.worker_process_shutdown.connect
def close_connections(**_signal: object) -> None:
    if engine.cache_info().currsize:
        engine().dispose()
