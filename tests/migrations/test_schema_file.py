"""migrations/schema.sql is what the migrations make, and a backup of the database can be restored."""

import subprocess
from pathlib import Path
from typing import Any

from sqlalchemy import text

from domain.statuses import VersionStatus
from embedded.postgres import SUPERUSER
from embedded.servers import Servers
from tests.conftest import Database
from tests.database.lifecycle import claim, complete
from tests.database.states import version_in
from tests.migrations.schema import SCHEMA, dump
from tests.migrations.test_up_and_down import connect


def test_the_schema_file_is_the_newest_schema(servers: Servers, database: Database) -> None:
    newest = dump(servers, database.name)
    assert SCHEMA.read_text(encoding="utf-8") == newest, "run: python -m tests.migrations.schema"


def test_a_backup_is_restored_although_no_trigger_would_let_its_rows_in(
    servers: Servers, database: Database, empty: Database
) -> None:
    with connect(database.app_url) as connection:
        storing = [version_in(connection, status) for status in VersionStatus][4]
        connection.commit()
    programs = servers.postgres.binaries().postgres_bin
    backup = subprocess.run(
        [programs / "pg_dump", f"--dbname={servers.postgres.url(SUPERUSER, database.name)}"],
        capture_output=True,
        check=True,
        timeout=60,
    ).stdout
    restore: list[str | Path] = [
        programs / "psql",
        "--no-psqlrc",
        "--quiet",
        "--set=ON_ERROR_STOP=1",
        f"--dbname={servers.postgres.url(SUPERUSER, empty.name)}",
    ]
    subprocess.run(restore, input=backup, check=True, capture_output=True, timeout=60)

    def rows(of: Database) -> list[Any]:
        counts = [
            f"SELECT '{table}', count(*), max(t::text) FROM {table} t"
            for table in ("documents", "embedding_jobs", "indexing_attempts", "embeddings", "indexing_events")
        ]
        with connect(of.superuser_url) as connection:
            return list(connection.execute(text(" UNION ALL ".join(counts))))

    assert rows(empty) == rows(database)
    with connect(empty.app_url) as connection:
        complete(connection, storing)
        claim(connection, version_in(connection, VersionStatus.UPLOADED))
        connection.commit()
