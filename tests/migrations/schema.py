"""The schema that the migrations make, as pg_dump writes it.

``python -m tests.migrations.schema`` writes it to migrations/schema.sql.
"""

import re
import subprocess
import tempfile
from pathlib import Path

from embedded.postgres import OWNER
from embedded.servers import Servers, start
from migrations.sql import VERSIONS

SCHEMA = VERSIONS.parent / "schema.sql"
HEADER = "-- The schema at the newest migration. Not to be edited: python -m tests.migrations.schema writes it.\n"
# Random in each dump, or the version of the server.
CHANGING = re.compile(r"^(\\(un)?restrict .*|-- Dumped (from|by) .*)\n", re.MULTILINE)
LINES_OF_COMMENT = re.compile(r"^--\n-- Name: (.*); Type: (.*); Schema: .*\n--\n", re.MULTILINE)


def dump(servers: Servers, database: str) -> str:
    """Every object and grant of the database, in an order that depends on nothing else."""
    command: list[str | Path] = [
        servers.postgres.binaries().postgres_bin / "pg_dump",
        "--schema-only",
        "--no-owner",
        f"--dbname={servers.postgres.url(OWNER, database)}",
    ]
    dumped = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    dumped = LINES_OF_COMMENT.sub(r"-- \2 \1\n", CHANGING.sub("", dumped))
    return HEADER + re.sub(r"\n{2,}", "\n\n", dumped).strip() + "\n"


def write() -> None:
    with tempfile.TemporaryDirectory(prefix="holdfast-schema-") as folder, start(Path(folder)) as servers:
        SCHEMA.write_text(dump(servers, "holdfast"), encoding="utf-8")


if __name__ == "__main__":
    write()
