"""Rows as tests look at them."""

from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, text

TABLES = (
    "workers",
    "documents",
    "document_versions",
    "embedding_jobs",
    "indexing_attempts",
    "parsed_texts",
    "chunks",
    "embeddings",
    "indexing_events",
    "processing_failures",
    "notifications",
    "failure_policies",
    "embedding_models",
    "claim_hints",
)


def one(connection: Connection, sql: str, **parameters: object) -> Any:
    """The only column of the only row."""
    return connection.execute(text(sql), parameters).scalar_one()


def column(connection: Connection, sql: str, **parameters: object) -> list[Any]:
    """The only column of every row."""
    return list(connection.execute(text(sql), parameters).scalars())


def row(connection: Connection, table: str, id_: int) -> Row[Any]:
    return connection.execute(text(f"SELECT * FROM {table} WHERE id = :id"), {"id": id_}).one()  # noqa: S608


def count(connection: Connection, table: str) -> int:
    return int(one(connection, f"SELECT count(*) FROM {table}"))  # noqa: S608


def dump(connection: Connection) -> dict[str, list[str]]:
    """Everything in every table, to be compared."""
    every = " UNION ALL ".join(
        f"SELECT '{table}', array_agg(t::text ORDER BY t::text) FROM {table} AS t"  # noqa: S608
        for table in TABLES
    )
    return {table: rows for table, rows in connection.execute(text(every))}


def events(connection: Connection, document_id: int, after: int = 0) -> list[str]:
    """The types of the document's events, in order."""
    return column(
        connection,
        "SELECT type FROM indexing_events WHERE document_id = :document AND id > :after ORDER BY id",
        document=document_id,
        after=after,
    )


def last_event(connection: Connection) -> int:
    return int(one(connection, "SELECT coalesce(max(id), 0) FROM indexing_events"))


def statuses(connection: Connection, version_id: int) -> tuple[str, str, str]:
    """Of the version's document, of the version, and of its latest job."""
    found = connection.execute(
        text(
            """
            SELECT d.status, v.status, j.status FROM document_versions v
            JOIN documents d ON d.id = v.document_id JOIN embedding_jobs j ON j.version_id = v.id
            WHERE v.id = :version ORDER BY j.id DESC LIMIT 1
            """
        ),
        {"version": version_id},
    ).one()
    return found[0], found[1], found[2]


def embeddings(connection: Connection, version_id: int) -> dict[str, int]:
    """How many embeddings of the version there are, by status."""
    found = connection.execute(
        text("SELECT status, count(*) FROM embeddings WHERE version_id = :version GROUP BY status"),
        {"version": version_id},
    )
    return {status: number for status, number in found}


def other_token() -> UUID:
    return UUID(int=1)
