"""Expecting the database to refuse, by the name of the rule, and going on as if nothing had been tried."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from psycopg import errors
from sqlalchemy import Connection, CursorResult, text
from sqlalchemy.exc import DBAPIError


def run(connection: Connection, sql: str, **values: Any) -> CursorResult[*tuple[Any, ...]]:
    """Execute raw SQL; ``:name`` is a value."""
    return connection.execute(text(sql), values)


def one(connection: Connection, sql: str, **values: Any) -> Any:
    """The single value that the statement returns."""
    return run(connection, sql, **values).scalar_one()


def row(connection: Connection, sql: str, **values: Any) -> dict[str, Any]:
    """The single row that the statement returns, by column."""
    return run(connection, sql, **values).one()._asdict()


def commit_checks(connection: Connection) -> None:
    """Run what the database would check at COMMIT, in the open transaction."""
    run(connection, "SET CONSTRAINTS ALL IMMEDIATE")
    run(connection, "SET CONSTRAINTS ALL DEFERRED")


def triggers_off(superuser: Connection) -> None:
    """From here on in this transaction only row rules refuse, as in a restore; foreign keys are triggers too."""
    run(superuser, "SET LOCAL session_replication_role = replica")


def rule_of(error: DBAPIError) -> str | None:
    """The constraint or trigger rule that the database named."""
    assert isinstance(error.orig, errors.Error), error
    return error.orig.diag.constraint_name


@contextmanager
def refused(connection: Connection, rule: str) -> Iterator[None]:
    """The statements inside are refused by this rule, before any commit."""
    with connection.begin_nested() as savepoint:
        with pytest.raises(DBAPIError) as caught:
            yield
        savepoint.rollback()
    assert rule_of(caught.value) == rule, caught.value


@contextmanager
def refused_at_commit(connection: Connection, rule: str) -> Iterator[None]:
    """The statements inside pass, but the commit they ask for is refused by this rule."""
    with connection.begin_nested() as savepoint:
        yield
        with pytest.raises(DBAPIError) as caught:
            commit_checks(connection)
        savepoint.rollback()
    assert rule_of(caught.value) == rule, caught.value


@contextmanager
def not_permitted(connection: Connection) -> Iterator[None]:
    """The role lacks the privilege for what is inside (SQLSTATE 42501), whatever the rules say."""
    with connection.begin_nested() as savepoint:
        with pytest.raises(DBAPIError) as caught:
            yield
        savepoint.rollback()
    assert isinstance(caught.value.orig, errors.InsufficientPrivilege), caught.value
