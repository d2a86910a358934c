"""The SQL lint passes, and what it leaves out hides no mistake that would stop or break a running system."""

import subprocess
import sys
from pathlib import Path

import pytest

from migrations.sql import VERSIONS

ROOT = VERSIONS.parent.parent
SQUAWK = Path(sys.executable).with_name("squawk")


def lint(*files: Path) -> "subprocess.CompletedProcess[str]":
    command: list[str | Path] = [SQUAWK, "--config", ROOT / ".squawk.toml", "--reporter", "gcc", *files]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=60)


def test_the_migrations_pass() -> None:
    linted = lint(*VERSIONS.glob("*.sql"))
    assert (linted.returncode, linted.stdout) == (0, "")


@pytest.mark.parametrize(
    ("rule", "statement"),
    [
        ("adding-required-field", "ALTER TABLE documents ADD COLUMN kind text NOT NULL;"),
        ("require-concurrent-index-creation", "CREATE INDEX documents_by_name ON documents (name);"),
        ("ban-drop-column", "ALTER TABLE documents DROP COLUMN name;"),
        ("ban-drop-table", "DROP TABLE notifications;"),
        ("ban-drop-function", "DROP FUNCTION refuse(text, text, text);"),
        ("renaming-column", "ALTER TABLE documents RENAME COLUMN name TO title;"),
        ("changing-column-type", "ALTER TABLE documents ALTER COLUMN name TYPE bytea USING name::bytea;"),
        ("constraint-missing-not-valid", "ALTER TABLE documents ADD CONSTRAINT named CHECK (name <> '');"),
        (
            "adding-foreign-key-constraint",
            "ALTER TABLE documents ADD CONSTRAINT known FOREIGN KEY (id) REFERENCES workers (id);",
        ),
        ("prefer-timestamp-tz", "CREATE TABLE days (id bigint, day timestamp);"),
        ("prefer-text-field", "CREATE TABLE names (id bigint, name varchar(10));"),
        ("transaction-nesting", "COMMIT;"),
    ],
)
def test_a_mistake_in_a_migration_is_found(tmp_path: Path, rule: str, statement: str) -> None:
    migration = tmp_path / "0099_mistake.up.sql"
    migration.write_text(statement)
    linted = lint(migration)
    assert linted.returncode != 0
    assert rule in linted.stdout
