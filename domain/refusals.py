"""Work on many rows in one transaction, where the database may refuse one: it must stop nothing else."""

import logging
from collections.abc import Callable

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

log = logging.getLogger(__name__)

LOCK_NOT_AVAILABLE = "55P03"


def sqlstate_of(error: DBAPIError) -> str:
    """The SQLSTATE of a database error; empty where the connection broke before one arrived."""
    return getattr(error.orig, "sqlstate", None) or ""


def rule_of(error: DBAPIError) -> str | None:
    """The name of the constraint or trigger rule that refused."""
    return getattr(getattr(error.orig, "diag", None), "constraint_name", None)


def refused(connection: Connection, what: str, change: Callable[[], None]) -> bool:
    """Make a change in a savepoint, with its commit checks at once; whether the database refused the row.

    A refused row is logged and leaves the transaction as it was. A row that is locked by another transaction is
    neither changed nor counted as refused: its turn comes again.

    Raises:
        DBAPIError: anything that is not about this row, such as a lost connection, a deadlock or a full disk.
    """
    try:
        with connection.begin_nested():
            change()
            connection.execute(text("SET CONSTRAINTS ALL IMMEDIATE"))
            connection.execute(text("SET CONSTRAINTS ALL DEFERRED"))
    except DBAPIError as error:
        state = sqlstate_of(error)
        if state == LOCK_NOT_AVAILABLE:
            return False
        if state[:2] not in ("22", "23", "P0"):
            raise
        log.error("the database refused %s by rule %s: %s", what, rule_of(error), str(error.orig).split("\n", 1)[0])
        return True
    return False
