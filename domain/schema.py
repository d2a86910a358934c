"""Which revision of the schema this program was written for."""

from sqlalchemy import Connection, text

SCHEMA_REVISION = "0005"
"""The newest file of ``migrations/versions``; a test holds it equal."""


def schema_revision(connection: Connection) -> str | None:
    """The revision that the database is at; None where no migration ever ran."""
    if connection.execute(text("SELECT to_regclass('alembic_version') IS NULL")).scalar_one():
        return None
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one_or_none()
