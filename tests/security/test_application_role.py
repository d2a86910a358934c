"""The application role outside its tables: no file, no program, no other session, no password."""

import pytest
from sqlalchemy import Connection

from tests.database.refusals import not_permitted, one, run


@pytest.mark.parametrize(
    "statement",
    [
        "COPY documents TO PROGRAM 'cat'",
        "COPY documents (name) FROM PROGRAM 'id'",
        "COPY documents TO '/tmp/documents'",
        "COPY documents (name) FROM '/etc/passwd'",
        "SELECT pg_read_file('/etc/passwd')",
        "SELECT pg_ls_dir('.')",
        "SELECT pg_stat_file('PG_VERSION')",
        "SELECT lo_import('/etc/passwd')",
        "SELECT pg_current_logfile()",
        "LOAD 'auto_explain'",
        "CREATE EXTENSION file_fdw",
        "CREATE EXTENSION dblink",
        "CREATE FUNCTION mine() RETURNS int LANGUAGE c AS '/lib/x.so'",
        "SELECT pg_reload_conf()",
        "SELECT rolpassword FROM pg_authid",
        "CREATE ROLE mine",
        "ALTER ROLE CURRENT_USER SUPERUSER",
        "SELECT pg_create_restore_point('x')",
        "SELECT pg_switch_wal()",
        "CREATE PUBLICATION mine FOR ALL TABLES",
        "SELECT pg_create_logical_replication_slot('x', 'pgoutput')",
    ],
)
def test_the_application_role_reads_no_file_runs_no_program_and_changes_no_server(
    connection: Connection, statement: str
) -> None:
    with not_permitted(connection):
        run(connection, statement)


def test_the_application_role_ends_no_session_of_another_role(
    connection: Connection, owner_connection: Connection
) -> None:
    owners = one(owner_connection, "SELECT pg_backend_pid()")
    for function in ("pg_terminate_backend", "pg_cancel_backend"):
        with not_permitted(connection):
            run(connection, f"SELECT {function}(:pid)", pid=owners)
