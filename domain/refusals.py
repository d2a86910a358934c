"""Work on many rows in one transaction, where the database may refuse one: it must stop nothing else."""

import logging
from collections.abc import Callable
from enum import Enum, auto

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError, NoResultFound

log = logging.getLogger(__name__)

LOCK_NOT_AVAILABLE = "55P03"


def sqlstate_of(error: DBAPIError) -> str:
    """The SQLSTATE of a database error; empty where the connection broke before one arrived."""
    return getattr(error.orig, "sqlstate", None) or ""


def rule_of(error: DBAPIError) -> str | None:
    """The name of the constraint or trigger rule that refused."""
    return getattr(getattr(error.orig, "diag", None), "constraint_name", None)


class Tried(Enum):
    """What became of a change; only one that was MADE left a trace."""

    MADE = auto()
    REFUSED = auto()  # by the row itself, and logged: it would be refused again
    LOCKED = auto()  # by another transaction: its turn comes again


def try_change(connection: Connection, what: str, change: Callable[[], None]) -> Tried:
    """Make a change in a savepoint, with its commit checks at once; say what became of it.

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
            return Tried.LOCKED
        if state[:2] not in ("22", "23", "P0"):
            raise
        log.error("the database refused %s by rule %s: %s", what, rule_of(error), str(error.orig).split("\n", 1)[0])
        return Tried.REFUSED
    except NoResultFound:  # no foreign key lets this happen; an owner who switched them off can
        log.error("failed %s: its version or its document does not exist", what)
        return Tried.REFUSED
    return Tried.MADE
