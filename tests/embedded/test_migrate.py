"""The `alembic` command by hand, as an operator of real servers uses it."""

import os
import subprocess
import sys

from sqlalchemy import Connection, text

from tests.embedded.conftest import PROJECT

HEAD = max(path.name for path in (PROJECT / "migrations" / "versions").glob("0*.py")).split("_")[0]


def alembic(*arguments: str, env: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    """Run from elsewhere, with nothing in the environment but ``env``."""
    return subprocess.run(
        [sys.executable, "-m", "alembic", "-c", str(PROJECT / "alembic.ini"), *arguments],
        cwd="/",
        env={"PATH": os.defpath, **env},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_it_migrates_down_and_up_from_any_folder(environment: dict[str, str], owner_connection: Connection) -> None:
    tables = text("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'")
    before = owner_connection.execute(tables).scalar_one()
    owner_connection.rollback()
    for arguments in (["downgrade", "base"], ["upgrade", "head"]):
        ended = alembic(*arguments, env=environment)
        assert ended.returncode == 0, ended.stderr
    assert HEAD in alembic("current", env=environment).stdout
    assert owner_connection.execute(tables).scalar_one() == before


def test_the_printed_script_is_the_sql_as_it_was_written(environment: dict[str, str]) -> None:
    printed = alembic("upgrade", "head", "--sql", env=environment)
    assert printed.returncode == 0, printed.stderr
    assert printed.stdout.startswith("SELECT set_config('holdfast.app_role', 'holdfast_app', false);")
    for file in sorted((PROJECT / "migrations" / "versions").glob("*.up.sql")):
        assert file.read_text() in printed.stdout, file.name


def test_without_an_address_it_says_which_variable_is_missing() -> None:
    ended = alembic("upgrade", "head", env={})
    assert ended.returncode != 0
    assert "DATABASE_URL is not set" in ended.stderr
    assert "Traceback" not in ended.stderr
