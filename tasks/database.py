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
from typing import Any, TypeVar

import psycopg
from billiard.exceptions import SoftTimeLimitExceeded
from celery import signals
from psycopg.rows import TupleRow
from sqlalchemy import Connection, Engine, NullPool, create_engine, event, text
from sqlalchemy.exc import DBAPIError

from settings import settings

T = TypeVar("T")

LOCK_TIMEOUT = timedelta(seconds=5)
STATEMENT_TIMEOUT = timedelta(seconds=60)
# Between two statements of a transaction lie milliseconds. A client that is gone without a word would hold its locks
# until the server's TCP notices, by default after two hours.
IDLE_TIMEOUT = timedelta(seconds=20)
TRIES = 3  # of a transaction that lost a deadlock or a serialization conflict

_SET_TIMEOUTS = text(
    "SELECT set_config('lock_timeout', :lock, true), set_config('statement_timeout', :statement, true), "
    "set_config('idle_in_transaction_session_timeout', :idle, true)"
)


class ImpatientConnection(psycopg.Connection[TupleRow]):
    """Gives up on a server that does not answer, and closes.

    The server's own timeouts do not end such a wait when it is stopped or its disk hangs, and TCP's do not either:
    its kernel goes on to acknowledge what it is sent.
    """

    answer_within = 10.0  # s
    patience = 10.0  # s; beyond what the server itself allows a statement

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        timeout = self.answer_within if timeout is None else timeout
        deadline = time.monotonic() + timeout
        try:
            return super().wait(gen, interval, timeout)
        except psycopg.OperationalError as error:
            if self.closed or time.monotonic() < deadline:
                raise
            self.pgconn.finish()  # no goodbye: nobody would hear it
            raise psycopg.OperationalError(f"the database has not answered for {timeout:g} s") from error


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
    return impatient(
        create_engine(
            settings().sqlalchemy_url,
            isolation_level="READ COMMITTED",
            pool_pre_ping=True,
            pool_size=1,
            max_overflow=1,
            pool_timeout=10,
            hide_parameters=True,  # an error's text must hold no document text
            connect_args=connect_args(10),
        ),
        seconds=10,
    )


def single_connection_engine(seconds: int) -> Engine:
    """An engine without a pool, for a thread that keeps its one connection and must never wait long."""
    return impatient(
        create_engine(
            settings().sqlalchemy_url,
            isolation_level="READ COMMITTED",
            poolclass=NullPool,
            hide_parameters=True,
            connect_args=connect_args(seconds),
        ),
        seconds,
    )


def impatient(engine: Engine, seconds: int) -> Engine:
    """Let the engine's connections wait for an answer no longer than a statement may take, and ``seconds``."""

    def connect(_: object, __: object, args: Any, parameters: Any) -> ImpatientConnection:
        connection = ImpatientConnection.connect(*args, **parameters)
        connection.answer_within = connection.patience = float(seconds)
        return connection

    event.listen(engine, "do_connect", connect)
    return engine


@contextmanager
def transaction(
    connection: Connection | None = None,
    lock_timeout: timedelta = LOCK_TIMEOUT,
    statement_timeout: timedelta = STATEMENT_TIMEOUT,
    idle_timeout: timedelta = IDLE_TIMEOUT,
) -> Iterator[Connection]:
    """One transaction: committed at the end, rolled back by an exception. Repeats nothing.

    Args:
        connection: begin on this one, which stays open; default is one of this process's engine.
        idle_timeout: for how long the server waits for the next statement before it rolls back and disconnects.
    """
    if connection is None:
        with engine().connect() as own, transaction(own, lock_timeout, statement_timeout, idle_timeout):
            yield own
        return
    try:
        with connection.begin():
            timeouts = {"lock": lock_timeout, "statement": statement_timeout, "idle": idle_timeout}
            connection.execute(_SET_TIMEOUTS, {name: _milliseconds(time) for name, time in timeouts.items()})
            with _answered_within(connection, statement_timeout):
                yield connection
    except SoftTimeLimitExceeded:
        # It struck anywhere, perhaps between a query and its answer: this connection is not to be used again.
        connection.invalidate()
        raise


@contextmanager
def _answered_within(connection: Connection, statement_timeout: timedelta) -> Iterator[None]:
    """Wait as long as a statement may take; the commit is waited for no longer than a connection's patience."""
    driver = connection.connection.driver_connection
    if not isinstance(driver, ImpatientConnection):
        yield
        return
    driver.answer_within = statement_timeout.total_seconds() + driver.patience
    try:
        yield
    finally:
        driver.answer_within = driver.patience


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
