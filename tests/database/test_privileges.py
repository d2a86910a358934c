"""What the application role may not even try, and what it cannot use to get around a rule."""

import pytest
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from domain.statuses import VersionStatus
from tests.database.lifecycle import delete, upload
from tests.database.refusals import not_permitted, one, refused, run
from tests.database.states import version_in

TABLES = [
    "workers",
    "failure_policies",
    "embedding_models",
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
    "claim_hints",
]


def test_every_table_is_judged_here(connection: Connection) -> None:
    tables = run(
        connection, "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'"
    )
    assert set(tables.scalars()) == {*TABLES, "alembic_version"}


def test_the_application_role_owns_nothing(connection: Connection) -> None:
    assert one(connection, "SELECT count(*) FROM pg_class WHERE relowner = current_user::regrole") == 0
    assert one(connection, "SELECT count(*) FROM pg_proc WHERE proowner = current_user::regrole") == 0
    assert one(connection, "SELECT count(*) FROM pg_auth_members WHERE member = current_user::regrole") == 0
    assert not one(connection, "SELECT rolsuper FROM pg_roles WHERE rolname = current_user")


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM {}",
        "TRUNCATE {} CASCADE",
        "ALTER TABLE {} DISABLE TRIGGER USER",
        "ALTER TABLE {} ADD COLUMN extra text",
        "DROP TABLE {} CASCADE",
        "CREATE TRIGGER mine BEFORE UPDATE ON {} FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()",
        "CREATE RULE mine AS ON UPDATE TO {} DO INSTEAD NOTHING",
        "CREATE INDEX mine ON {} ((1))",
        "ALTER TABLE {} OWNER TO CURRENT_USER",
    ],
)
def test_the_application_role_changes_no_table(connection: Connection, statement: str) -> None:
    for table in TABLES:
        with not_permitted(connection):
            run(connection, statement.format(table))


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO indexing_events (document_id, type) VALUES (1, 'INDEXED')",
        "UPDATE indexing_events SET type = 'INDEXED'",
        "INSERT INTO notifications (owner_id, document_id, version_id, type, payload) "
        "VALUES ('owner', 1, 1, 'DOCUMENT_INDEXED', '{}')",
        "UPDATE notifications SET payload = '{}'",
        "INSERT INTO processing_failures (document_id) VALUES (1)",
        "UPDATE processing_failures SET retry_count = 0",
        "INSERT INTO failure_policies (failure_type, retryable) VALUES ('NEW', true)",
        "UPDATE failure_policies SET failure_type = 'NEW'",
        "INSERT INTO embedding_models (name, dimensions) VALUES ('test:model', 3)",
        "UPDATE embedding_models SET dimensions = 4",
        "UPDATE document_versions SET chunk_count = 1",
        "UPDATE document_versions SET embedding_count = 1",
        "UPDATE document_versions SET active_embedding_count = 1",
        "UPDATE document_versions SET indexed_at = now()",
        "UPDATE parsed_texts SET text = 'other'",
        "UPDATE chunks SET text = 'other'",
        "INSERT INTO claim_hints DEFAULT VALUES",
        "INSERT INTO documents (id, owner_id, name) OVERRIDING SYSTEM VALUE VALUES (-1, 'owner', 'a')",
        "INSERT INTO workers (id, name, queues, concurrency) OVERRIDING SYSTEM VALUE VALUES (-1, 'w', '{}', 1)",
        "INSERT INTO embedding_jobs (id, version_id, document_id, owner_id, max_retry_count) "
        "OVERRIDING SYSTEM VALUE VALUES (-1, 1, 1, 'owner', 3)",
        "INSERT INTO document_versions (document_id, owner_id, version_no, storage_uri, model_id, chunk_count) "
        "VALUES (1, 'owner', 1, 'file:///a', 1, 0)",
        "INSERT INTO embeddings (chunk_id, model_id, version_id, owner_id, embedding, created_at) "
        "VALUES (1, 1, 1, 'owner', '[1]', now())",
        "SELECT setval('embedding_jobs_id_seq', 1)",
        "SELECT nextval('embedding_jobs_id_seq')",
        "UPDATE alembic_version SET version_num = '0001'",
    ],
)
def test_the_application_role_writes_no_history_counter_id_or_policy_type(
    connection: Connection, statement: str
) -> None:
    with not_permitted(connection):
        run(connection, statement)


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE public.mine (id int)",
        "CREATE FUNCTION public.refuse(text, text) RETURNS void LANGUAGE sql AS ''",
        "CREATE OPERATOR public.<> (FUNCTION = int4eq, LEFTARG = int, RIGHTARG = int)",
        "CREATE SCHEMA mine",
        "ALTER FUNCTION refuse(text, text, text) SET search_path = pg_temp",
        "CREATE OR REPLACE FUNCTION refuse(text, text, text) RETURNS void LANGUAGE sql AS ''",
        "DROP FUNCTION task_of_stage(text) CASCADE",
        "SET session_replication_role = replica",
        "SET ROLE holdfast_owner",
        "SELECT grant_application_role('public')",
        "CREATE EVENT TRIGGER mine ON ddl_command_end EXECUTE FUNCTION documents_history()",
    ],
)
def test_the_application_role_shadows_and_disables_nothing(connection: Connection, statement: str) -> None:
    with not_permitted(connection):
        run(connection, statement)


def test_the_application_role_runs_two_functions_of_the_owner(connection: Connection) -> None:
    definers = run(
        connection,
        "SELECT oid::regprocedure::text FROM pg_proc WHERE pronamespace = 'public'::regnamespace AND prosecdef "
        "AND has_function_privilege(oid, 'EXECUTE')",
    )
    assert set(definers.scalars()) == {"register_model(text,integer)", "delete_document_content(bigint)"}


@pytest.mark.parametrize("status", [status for status in VersionStatus])
def test_content_is_deleted_only_with_its_document(connection: Connection, status: VersionStatus) -> None:
    version = version_in(connection, status)
    with refused(connection, "content_deleted_with_its_document"):
        run(connection, "SELECT delete_document_content(:id)", id=version.document_id)


def test_content_of_a_deleted_document_may_be_deleted_again(connection: Connection) -> None:
    version = version_in(connection, VersionStatus.INDEXED)
    other = version_in(connection, VersionStatus.INDEXED)
    delete(connection, version)
    run(connection, "SELECT delete_document_content(:id)", id=version.document_id)
    counts = "SELECT count(*) FROM {} WHERE version_id = :id"
    for table in ("parsed_texts", "chunks", "embeddings"):
        assert one(connection, counts.format(table), id=version.version_id) == 0
        assert one(connection, counts.format(table), id=other.version_id) > 0


def test_a_new_job_has_a_higher_id_than_those_before_it(owner_connection: Connection) -> None:
    version = version_in(owner_connection, VersionStatus.FAILED)
    with refused(owner_connection, "jobs_latest_has_highest_id"):
        run(
            owner_connection,
            "INSERT INTO embedding_jobs (id, version_id, document_id, owner_id, max_retry_count) "
            "OVERRIDING SYSTEM VALUE VALUES (-1, :version, :document, 'owner', 3)",
            version=version.version_id,
            document=version.document_id,
        )


def test_an_id_is_not_given_by_the_caller(connection: Connection) -> None:
    made = upload(connection)
    with pytest.raises(DBAPIError, match="can only be updated to DEFAULT"):
        run(connection, "UPDATE embedding_jobs SET id = -1 WHERE id = :id", id=made.job_id)
