"""What a connection executes, and how the database would find it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, event


@contextmanager
def executed(connection: Connection) -> Iterator[list[tuple[str, Any]]]:
    """The statements, with their parameters, that the connection executes meanwhile."""
    seen: list[tuple[str, Any]] = []

    def note(_: Any, __: Any, statement: str, parameters: Any, *___: Any) -> None:
        seen.append((statement, parameters))

    event.listen(connection, "before_cursor_execute", note)
    yield seen
    event.remove(connection, "before_cursor_execute", note)


def plan(connection: Connection, statement: tuple[str, Any]) -> str:
    """The plan of a statement, as EXPLAIN prints it."""
    sql, parameters = statement
    return "\n".join(connection.exec_driver_sql("EXPLAIN " + sql, parameters).scalars())
