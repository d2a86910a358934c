"""Revisions run forward and back, each in one transaction, by whichever way they are started."""

import io
import subprocess
import sys

import pytest
from alembic import command
from alembic.script import ScriptDirectory
from psycopg import sql
from sqlalchemy import URL, Connection, create_engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from domain.statuses import VersionStatus
from embedded.postgres import APPLICATION, OWNER, SUPERUSER
from embedded.servers import Servers
from migrations.sql import VERSIONS
from tests.conftest import Database
from tests.database.lifecycle import cancel
from tests.database.states import version_in
from tests.migrations.revisions import alembic_config
from tests.migrations.schema import dump


def connect(url: URL) -> Connection:
    return create_engine(url, poolclass=NullPool, connect_args={"sslmode": "disable"}).connect()


def revision_of(database: Database) -> str | None:
    with connect(database.owner_url) as connection:
        revision: str | None = connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one_or_none()
        return revision


def objects_of(database: Database) -> list[str]:
    """Tables, functions and types in public that are not pgvector's; alembic's own table stays after a downgrade."""
    with connect(database.owner_url) as connection:
        return list(
            connection.execute(
                text(
                    """
                    SELECT relname FROM pg_class
                    WHERE relnamespace = 'public'::regnamespace AND relname NOT LIKE 'alembic_version%'
                    UNION
                    SELECT oid::regprocedure::text FROM pg_proc WHERE pronamespace = 'public'::regnamespace
                        AND NOT EXISTS (SELECT FROM pg_depend WHERE objid = pg_proc.oid AND deptype = 'e')
                    """
                )
            ).scalars()
        )


def test_up_down_and_up_again_is_the_same_schema(servers: Servers, empty: Database) -> None:
    config = alembic_config(empty.owner_url, APPLICATION)
    command.upgrade(config, "head")
    first = dump(servers, empty.name)
    command.downgrade(config, "base")
    assert objects_of(empty) == []
    command.upgrade(config, "head")
    assert dump(servers, empty.name) == first


def test_each_revision_goes_back_to_the_schema_before_it(servers: Servers, empty: Database) -> None:
    config = alembic_config(empty.owner_url, APPLICATION)
    revisions = [script.revision for script in ScriptDirectory.from_config(config).walk_revisions()][::-1]
    before = {}
    for revision in revisions:
        command.upgrade(config, revision)
        before[revision] = dump(servers, empty.name)
    for earlier, later in zip(reversed(revisions[:-1]), reversed(revisions[1:]), strict=True):
        command.downgrade(config, earlier)
        assert revision_of(empty) == earlier
        assert dump(servers, empty.name) == before[earlier], f"{later} does not go back"


def test_a_database_with_rows_goes_back_to_the_tables_and_forward_again(empty: Database) -> None:
    """Rows that the triggers made pass them again, and are neither changed nor checked by coming and going triggers."""
    config = alembic_config(empty.owner_url, APPLICATION)
    command.upgrade(config, "head")
    with connect(empty.app_url) as connection:
        held = version_in(connection, VersionStatus.PARSING)
        version_in(connection, VersionStatus.INDEXED)
        connection.commit()
    command.downgrade(config, "0001")
    command.upgrade(config, "head")
    with connect(empty.app_url) as connection:
        cancel(connection, held)
        connection.commit()


def test_every_revision_has_its_way_up_and_down() -> None:
    scripts = {file.stem for file in VERSIONS.glob("0*.py")}
    assert {file.name.removesuffix(".up.sql") for file in VERSIONS.glob("*.up.sql")} == scripts
    assert {file.name.removesuffix(".down.sql") for file in VERSIONS.glob("*.down.sql")} == scripts


def test_a_revision_that_fails_leaves_nothing_of_itself(empty: Database) -> None:
    config = alembic_config(empty.owner_url, APPLICATION)
    command.upgrade(config, "0003")
    before = objects_of(empty)
    with connect(empty.owner_url) as connection:
        # In the way of the last function that 0004 makes.
        connection.execute(text("CREATE FUNCTION check_at_commit() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN END'"))
        connection.commit()
    with pytest.raises(DBAPIError, match="already exists"):
        command.upgrade(config, "head")
    assert revision_of(empty) == "0003"
    assert sorted(objects_of(empty)) == sorted([*before, "check_at_commit()"])


def test_without_the_application_role_the_error_says_so(empty: Database) -> None:
    with pytest.raises(DBAPIError, match="the application role nobody_yet does not exist") as caught:
        command.upgrade(alembic_config(empty.owner_url, "nobody_yet"), "head")
    assert "CREATE ROLE nobody_yet LOGIN" in str(caught.value.orig.diag.message_hint)  # type: ignore[union-attr]
    assert revision_of(empty) == "0004"


def test_an_application_role_that_could_shadow_a_rule_is_refused(servers: Servers, empty: Database) -> None:
    with servers.postgres.connect(empty.name) as connection:
        connection.execute("GRANT CREATE ON SCHEMA public TO PUBLIC")
    with pytest.raises(DBAPIError, match="may create objects in schema public") as caught:
        command.upgrade(alembic_config(empty.owner_url, APPLICATION), "head")
    assert "REVOKE CREATE ON SCHEMA public FROM PUBLIC" in str(caught.value.orig.diag.message_hint)  # type: ignore[union-attr]


def test_a_downgrade_needs_no_application_role_that_is_gone(empty: Database) -> None:
    command.upgrade(alembic_config(empty.owner_url, APPLICATION), "head")
    command.downgrade(alembic_config(empty.owner_url, "dropped_since"), "base")
    assert objects_of(empty) == []


def test_a_downgrade_leaves_the_rights_to_other_tables_alone(empty: Database) -> None:
    config = alembic_config(empty.owner_url, APPLICATION)
    with connect(empty.owner_url) as connection:
        connection.execute(text("CREATE TABLE theirs ()"))
        connection.execute(text(f"GRANT SELECT ON theirs TO {APPLICATION}"))
        connection.commit()
    command.upgrade(config, "head")
    command.downgrade(config, "base")
    with connect(empty.owner_url) as connection:
        kept = f"SELECT has_table_privilege('{APPLICATION}', 'theirs', 'SELECT')"
        assert connection.execute(text(kept)).scalar_one()


def test_one_role_for_both_works(empty: Database) -> None:
    config = alembic_config(empty.owner_url, OWNER)
    command.upgrade(config, "head")
    with connect(empty.owner_url) as connection:
        for status in VersionStatus:
            version_in(connection, status)
        connection.commit()
    command.downgrade(config, "base")


def test_a_superuser_as_the_application_works(empty: Database) -> None:
    command.upgrade(alembic_config(empty.owner_url, SUPERUSER), "head")
    with connect(empty.superuser_url) as connection:
        version_in(connection, VersionStatus.INDEXED)
        connection.commit()


def test_the_printed_script_makes_the_same_schema(servers: Servers, empty: Database, database: Database) -> None:
    config = alembic_config(empty.owner_url, APPLICATION)
    config.output_buffer = io.StringIO()
    command.upgrade(config, "head", sql=True)
    script = config.output_buffer.getvalue()
    assert script.count("BEGIN;") == script.count("COMMIT;") == len(list(VERSIONS.glob("*.up.sql")))
    subprocess.run(
        [
            servers.postgres.binaries().postgres_bin / "psql",
            "--no-psqlrc",
            "--quiet",
            "--set=ON_ERROR_STOP=1",
            f"--dbname={servers.postgres.url(OWNER, empty.name)}",
        ],
        input=script,
        text=True,
        check=True,
        timeout=60,
    )
    assert dump(servers, empty.name) == dump(servers, database.name)


def test_the_alembic_command_reads_the_environment(environment: dict[str, str], database: Database) -> None:
    def alembic(*arguments: str) -> str:
        command_line = [sys.executable, "-m", "alembic", *arguments]
        root = VERSIONS.parent.parent
        done = subprocess.run(
            command_line, env=environment, capture_output=True, text=True, check=True, timeout=120, cwd=root
        )
        return done.stdout

    alembic("downgrade", "base")
    assert objects_of(database) == []
    alembic("upgrade", "head")
    assert alembic("current").startswith("0005 (head)")


def test_the_owner_needs_no_more_than_its_database(servers: Servers, empty: Database) -> None:
    with servers.postgres.connect("postgres") as connection:
        rights = connection.execute(
            sql.SQL(
                "SELECT rolsuper, rolcreaterole, rolcreatedb, rolbypassrls FROM pg_roles WHERE rolname = {}"
            ).format(sql.Literal(OWNER))
        ).fetchone()
    assert rights == (False, False, False, False)
    command.upgrade(alembic_config(empty.owner_url, APPLICATION), "head")
