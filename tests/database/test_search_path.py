"""Whatever a session puts in its search path or its temporary schema, the triggers use the owner's objects."""

import pytest
from sqlalchemy import Connection

from domain.statuses import VersionStatus
from embedded.postgres import APPLICATION
from tests.database.lifecycle import Indexing, complete, fail, move_version, retry
from tests.database.refusals import commit_checks, not_permitted, one, refused, refused_at_commit, run
from tests.database.states import version_in


def test_every_function_pins_its_search_path(connection: Connection) -> None:
    functions = run(
        connection,
        """
        SELECT p.oid::regprocedure::text, p.proconfig FROM pg_proc p
        WHERE p.pronamespace = 'public'::regnamespace
            AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = p.oid AND d.deptype = 'e')
        """,
    ).all()
    assert len(functions) > 20
    assert {name: config for name, config in functions if config != ["search_path=pg_catalog, public, pg_temp"]} == {}


@pytest.fixture
def connection(superuser: Connection) -> Connection:
    """The application role where, unlike in the embedded server, PUBLIC may make temporary tables."""
    run(superuser, f"GRANT TEMPORARY ON DATABASE {one(superuser, 'SELECT current_database()')} TO {APPLICATION}")
    run(superuser, f"SET LOCAL ROLE {APPLICATION}")
    return superuser


@pytest.fixture
def attacked(connection: Connection) -> Indexing:
    """A STORING version, and then a session full of impostors."""
    version = version_in(connection, VersionStatus.STORING)
    impostors = [
        "CREATE TEMP TABLE documents AS SELECT * FROM public.documents",
        "CREATE TEMP TABLE document_versions AS SELECT * FROM public.document_versions",
        "CREATE TEMP TABLE embedding_jobs AS SELECT * FROM public.embedding_jobs",
        "CREATE TEMP TABLE indexing_attempts AS SELECT * FROM public.indexing_attempts",
        "CREATE TEMP TABLE indexing_events (LIKE public.indexing_events)",
        "CREATE TEMP TABLE notifications (LIKE public.notifications)",
        "CREATE TEMP TABLE processing_failures (LIKE public.processing_failures)",
        "CREATE TEMP TABLE failure_policies AS SELECT * FROM public.failure_policies",
        "UPDATE pg_temp.failure_policies SET retryable = true, base_delay = '0'",
        # Jobs and versions as the checks would like to find them.
        "UPDATE pg_temp.embedding_jobs SET status = 'INDEXED'",
        "UPDATE pg_temp.document_versions SET chunk_count = 0, status = 'INDEXED'",
        "CREATE FUNCTION pg_temp.refuse(text, text) RETURNS void LANGUAGE sql AS ''",
        "CREATE FUNCTION pg_temp.refuse(text, text, text) RETURNS void LANGUAGE sql AS ''",
        "CREATE FUNCTION pg_temp.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS 'SELECT NULL::timestamptz'",
        "CREATE FUNCTION pg_temp.task_of_stage(text) RETURNS text LANGUAGE sql AS $$ SELECT 'embed' $$",
        "CREATE FUNCTION pg_temp.differ(text, text) RETURNS boolean LANGUAGE sql AS $$ SELECT false $$",
        "CREATE OPERATOR pg_temp.<> (FUNCTION = pg_temp.differ, LEFTARG = text, RIGHTARG = text)",
        "SET LOCAL search_path = pg_temp, pg_catalog, public",
    ]
    for impostor in impostors:
        run(connection, impostor)
    return version


def test_the_guards_are_not_deceived(connection: Connection, attacked: Indexing) -> None:
    with refused(connection, "versions_transition_known"):
        run(
            connection, "UPDATE public.document_versions SET status = 'UPLOADED' WHERE id = :id", id=attacked.version_id
        )
    with refused(connection, "jobs_follow_their_attempt"):
        run(
            connection,
            "UPDATE public.embedding_jobs SET status = 'INDEXED', worker_id = NULL, claim_token = NULL, "
            "lease_expires_at = NULL WHERE id = :id",
            id=attacked.job_id,
        )


def test_the_commit_checks_are_not_deceived(connection: Connection, attacked: Indexing) -> None:
    with refused_at_commit(connection, "versions_agree_with_latest_job"):
        run(connection, "UPDATE public.document_versions SET status = 'INDEXED' WHERE id = :id", id=attacked.version_id)


def test_history_goes_to_the_owner_s_tables(connection: Connection, attacked: Indexing) -> None:
    fail = "UPDATE public.indexing_attempts SET status = 'FAILED', failure_type = 'DOCUMENT_CONTENT_INVALID', "
    run(connection, fail + "error_message = 'x' WHERE id = :id", id=attacked.attempt_id)
    outcome = "SELECT outcome FROM public.indexing_attempts WHERE id = :id"
    assert one(connection, outcome, id=attacked.attempt_id) == "FAILED"
    events = "SELECT count(*) FROM public.indexing_events WHERE attempt_id = :id AND type = 'STORING_FAILED'"
    assert one(connection, events, id=attacked.attempt_id) == 1
    assert one(connection, "SELECT count(*) FROM pg_temp.indexing_events") == 0


@pytest.mark.parametrize("search_path", ["", "pg_temp", "pg_catalog"])
def test_everything_works_with_any_search_path(connection: Connection, search_path: str) -> None:
    indexed, failed = version_in(connection, VersionStatus.STORING), version_in(connection, VersionStatus.STORING)
    complete(connection, indexed)
    fail(connection, failed)
    again = retry(connection, failed)
    move = "UPDATE public.document_versions SET status = 'CANCELLED' WHERE id = :id"
    run(connection, "UPDATE embedding_jobs SET status = 'CANCELLED' WHERE id = :id", id=again.job_id)
    run(connection, f"SET LOCAL search_path = '{search_path}'")
    run(connection, move, id=failed.version_id)
    run(connection, "UPDATE public.embeddings SET status = 'STALE' WHERE version_id = :id", id=failed.version_id)
    run(connection, "UPDATE public.documents SET status = 'CANCELLED' WHERE id = :id", id=failed.document_id)
    commit_checks(connection)


def test_a_temporary_table_is_not_moved_by_mistake(connection: Connection, attacked: Indexing) -> None:
    move_version(connection, attacked, "FAILED")
    status = "SELECT status FROM public.document_versions WHERE id = :id"
    assert one(connection, status, id=attacked.version_id) == "STORING"


def test_owner_s_functions_that_triggers_call_hang_on_no_table_of_the_application_role(connection: Connection) -> None:
    run(connection, "CREATE TEMP TABLE mine (id bigint, version_id bigint, status text)")
    functions = run(
        connection,
        "SELECT proname FROM pg_proc WHERE pronamespace = 'public'::regnamespace AND prosecdef "
        "AND prorettype = 'trigger'::regtype",
    ).scalars()
    names = list(functions)
    assert len(names) == 8
    for name in names:
        with not_permitted(connection):
            run(connection, f"CREATE TRIGGER mine AFTER INSERT ON mine FOR EACH ROW EXECUTE FUNCTION {name}()")
