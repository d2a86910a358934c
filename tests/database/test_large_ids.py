"""Ids go on past what four bytes hold."""

from sqlalchemy import Connection

from domain.statuses import VersionStatus
from tests.database.lifecycle import delete, retry
from tests.database.refusals import commit_checks, one, run
from tests.database.states import version_in

V = VersionStatus
BEYOND_FOUR_BYTES = 2**31


def start_ids_beyond(connection: Connection, start: int) -> list[str]:
    sequences = run(
        connection,
        """
        SELECT s.relname FROM pg_class s JOIN pg_depend d ON d.objid = s.oid AND d.deptype = 'i'
        WHERE s.relkind = 'S' AND s.relnamespace = 'public'::regnamespace
        """,
    ).scalars()
    names = list(sequences)
    for name in names:
        run(connection, f"ALTER SEQUENCE {name} RESTART WITH {start}")
    return names


def test_every_id_may_be_larger_than_two_to_the_thirty_first(owner_connection: Connection) -> None:
    sequences = start_ids_beyond(owner_connection, BEYOND_FOUR_BYTES)
    version_in(owner_connection, V.INDEXED)
    stopped = version_in(owner_connection, V.FAILED)
    retry(owner_connection, stopped)
    commit_checks(owner_connection)
    deleted = version_in(owner_connection, V.INDEXED)
    delete(owner_connection, deleted)
    commit_checks(owner_connection)
    assert len(sequences) == 10
    for sequence in sequences:
        table = sequence.removesuffix("_id_seq")
        smallest = one(owner_connection, f"SELECT min(id) FROM {table}")
        assert smallest >= BEYOND_FOUR_BYTES, table


def test_every_id_and_every_column_that_names_one_has_eight_bytes(connection: Connection) -> None:
    narrow = run(
        connection,
        """
        SELECT table_name, column_name FROM information_schema.columns
        WHERE table_schema = 'public' AND (column_name = 'id' OR column_name ~ '_id$') AND data_type <> 'bigint'
        """,
    )
    others = {"owner_id", "request_id", "transaction_id"}  # text, text, and PostgreSQL's own
    assert {(table, column) for table, column in narrow if column not in others} == set()
