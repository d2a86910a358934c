"""The engine of an API process, and transactions on it.

As for the workers, no session state is used, so that a pooler in transaction mode may stand between.
"""

import random
import time
from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Connection, create_engine, text
from sqlalchemy.exc import DBAPIError

from settings import Settings

T = TypeVar("T")

LISTENER_CONNECTIONS = 2
CHECK_CONNECTIONS = 2
"""Beside those of requests: what listeners, health and metrics ask must not wait behind them, nor they behind it."""

POOL_TIMEOUT_SECONDS = 5
CONNECT_TIMEOUT_SECONDS = 3
LOCK_TIMEOUT_MS = 5_000
STATEMENT_TIMEOUT_MS = 30_000
TRIES = 3  # of a transaction that lost a deadlock or a serialization conflict

_SET_TIMEOUTS = text(
    "SELECT set_config('lock_timeout', :lock, true), set_config('statement_timeout', :statement, true)"
)


class Database:
    """Runs the domain's functions, each call in one transaction that is committed before its answer goes out."""

    def __init__(self, values: Settings) -> None:
        """Connects to nothing yet."""
        self.engine = create_engine(
            values.sqlalchemy_url,
            isolation_level="READ COMMITTED",
            pool_pre_ping=True,
            pool_size=values.api_database_connections,
            max_overflow=LISTENER_CONNECTIONS + CHECK_CONNECTIONS,
            pool_timeout=POOL_TIMEOUT_SECONDS,
            hide_parameters=True,  # an error's text must hold no document text
            connect_args={
                "prepare_threshold": None,
                "connect_timeout": CONNECT_TIMEOUT_SECONDS,
                # A server that vanished without a word is given up as soon as one that does not answer.
                "tcp_user_timeout": 10_000,  # ms
                "keepalives_idle": 10,
                "keepalives_interval": 3,
                "keepalives_count": 3,
            },
        )

    def run(self, work: Callable[[Connection], T], statement_timeout_ms: int = STATEMENT_TIMEOUT_MS) -> T:
        """Run ``work`` in a transaction; repeat it, three times at most, when it lost a deadlock.

        Raises:
            DBAPIError, sqlalchemy.exc.TimeoutError: the database is away, busy, or refused.
        """
        for tries_left in reversed(range(TRIES)):
            try:
                with self.engine.begin() as connection:
                    timeouts = {"lock": str(LOCK_TIMEOUT_MS), "statement": str(statement_timeout_ms)}
                    connection.execute(_SET_TIMEOUTS, timeouts)
                    return work(connection)
            except DBAPIError as error:
                if not tries_left or sqlstate_of(error) not in ("40001", "40P01"):
                    raise
                time.sleep(random.uniform(0.05, 0.3))  # noqa: S311 - spreads the rivals, guards nothing
        raise AssertionError("unreachable")

    def close(self) -> None:
        """Close every connection that is not in use."""
        self.engine.dispose()


def sqlstate_of(error: DBAPIError) -> str:
    """The SQLSTATE of a database error; empty where the connection broke before one arrived."""
    return getattr(error.orig, "sqlstate", None) or ""
