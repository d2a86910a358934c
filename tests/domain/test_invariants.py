from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest
from sqlalchemy import Connection, text

from domain.cancel import cancel_document
from domain.delete import delete_document
from domain.failures import FailureType
from domain.invariants import Violation, check_invariants
from domain.release import release_attempt
from domain.retry import retry_version
from domain.rules_of_schema import COMMIT_CHECKS, CONSTRAINTS, INDEXES, TRIGGERS
from domain.statuses import VersionStatus
from tests.conftest import Connect, Engines
from tests.domain.indexing import Indexing

NOBODY = 999_999_999


@dataclass
class World:
    """Documents in every state a whole run leaves behind; ``ids`` of each, by its name, as parameters of SQL."""

    connection: Connection
    ids: dict[str, int] = field(default_factory=dict)

    def fill(self) -> None:
        indexing = Indexing(self.connection)
        indexing.retry_at_once()
        self.note(indexing.index("indexed", content="old").document_id, "superseded")
        indexing.index("indexed", content="new")
        indexing.upload("overtaken", content="old")
        overtaken = indexing.bring_to(VersionStatus.STORING)
        self.note(overtaken.document_id, "overtaken_first")
        indexing.index("overtaken", content="new")
        indexing.complete(overtaken)

        indexing.upload("failed")
        indexing.fail(indexing.bring_to(VersionStatus.PARSING))
        indexing.fail(indexing.bring_to(VersionStatus.EMBEDDING), FailureType.DOCUMENT_CONTENT_INVALID)
        again = indexing.upload("failed once")
        indexing.fail(indexing.bring_to(VersionStatus.CHUNKING), FailureType.EMBEDDING_RESULT_INVALID)
        retry_version(self.connection, again.version_id)
        indexing.bring_to(VersionStatus.INDEXED)
        cancelled = indexing.upload("cancelled")
        indexing.bring_to(VersionStatus.STORING)
        cancel_document(self.connection, cancelled.document_id)
        deleted = indexing.index("deleted")
        delete_document(self.connection, deleted.document_id)

        indexing.upload("embedding")
        indexing.embed(indexing.bring_to(VersionStatus.EMBEDDING), most=1)
        indexing.upload("storing")
        indexing.bring_to(VersionStatus.STORING)
        indexing.upload("retried")
        indexing.fail(indexing.bring_to(VersionStatus.PARSING))
        indexing.upload("released")
        indexing.bring_to(VersionStatus.PARSING)  # the retry, which was due first
        release_attempt(self.connection, indexing.claim().claim)
        indexing.fail(indexing.bring_to(VersionStatus.PARSING))
        indexing.upload("waiting")
        indexing.check_commit()

        for name, document_id in self.connection.execute(text("SELECT name, id FROM documents")):
            self.note(document_id, name.replace(" ", "_"))

    def note(self, document_id: int, name: str) -> None:
        """Remember a document, its newest version, and that version's latest job and attempt."""
        version, job, attempt = self.connection.execute(
            text("""
                SELECT v.id, j.id, (SELECT max(a.id) FROM indexing_attempts AS a WHERE a.job_id = j.id)
                FROM document_versions AS v JOIN embedding_jobs AS j ON j.version_id = v.id
                WHERE v.document_id = :id ORDER BY v.version_no DESC, j.id DESC LIMIT 1
            """),
            {"id": document_id},
        ).one()
        self.ids |= {name: document_id, f"{name}_version": version, f"{name}_job": job, f"{name}_attempt": attempt}
        self.ids["nobody"] = NOBODY

    def break_with(self, *statements: str, replica: bool = True) -> list[Violation]:
        """Write past every trigger, then check."""
        if replica:
            self.connection.execute(text("SET LOCAL session_replication_role = replica"))
        for statement in statements:
            self.connection.execute(text(statement), self.ids)
        self.connection.execute(text("SET LOCAL session_replication_role = origin"))
        return check_invariants(self.connection)


@pytest.fixture(scope="module")
def filled(shared_engines: Engines) -> Iterator[World]:
    with shared_engines.superuser.connect() as connection:
        connection.begin()
        world = World(connection)
        world.fill()
        yield world


@pytest.fixture
def world(filled: World) -> Iterator[World]:
    """The one world of this module, as it was before each test."""
    with filled.connection.begin_nested() as savepoint:
        yield filled
        savepoint.rollback()


def test_a_database_that_went_through_a_whole_run_breaks_no_rule(world: World) -> None:
    assert check_invariants(world.connection) == []
    assert check_invariants(world.connection, newest=None) == []


def test_the_application_may_check_in_a_read_only_transaction(connect: Connect) -> None:
    with connect() as connection:
        World(connection).fill()
        connection.commit()
        connection.execute(text("SET TRANSACTION READ ONLY"))
        assert check_invariants(connection) == []


@pytest.mark.race
def test_work_that_goes_on_meanwhile_is_never_mistaken_for_a_violation(connect: Connect) -> None:
    def work() -> None:
        connection = connect()
        indexing = Indexing(connection)
        for number in range(30):
            first = indexing.upload(f"{number % 5}", content=f"{number}")
            connection.commit()
            indexing.bring_to(VersionStatus.EMBEDDING)
            connection.commit()
            second = indexing.upload(f"{number % 5}", content=f"{number} again")
            connection.commit()
            indexing.bring_to(VersionStatus.INDEXED)
            connection.commit()
            cancel_document(connection, first.document_id)
            connection.commit()
            if number % 3 == 0:
                delete_document(connection, second.document_id)
                connection.commit()

    checks = 0
    with ThreadPoolExecutor(1) as background:
        working = background.submit(work)
        checking = connect()
        while not working.done():
            assert check_invariants(checking) == []
            checking.rollback()
            checks += 1
        working.result()
    assert checks > 5, "the checks ran between the transactions"


NEW_EVENT = "INSERT INTO indexing_events (document_id, version_id, job_id, type) VALUES "

# Each breaks the rule it is listed under, and no other; where it takes more than one statement, the others put right
# what else the first one would break.
BROKEN: dict[str, tuple[str, ...]] = {
    "jobs_processing_has_its_attempt": (
        "UPDATE indexing_attempts SET claim_token = gen_random_uuid() WHERE id = :embedding_attempt",
    ),
    "attempts_started_has_its_job": (
        "UPDATE indexing_attempts SET status = 'STARTED', finished_at = NULL WHERE id = :cancelled_attempt",
    ),
    "jobs_indexed_iff_last_attempt_is": (
        "UPDATE indexing_attempts SET status = 'CANCELLED' WHERE id = :indexed_attempt",
    ),
    "jobs_failed_iff_last_attempt_is": (
        "UPDATE indexing_attempts SET status = 'CANCELLED', failed_stage = NULL, failure_type = NULL, "
        "failure_reason = NULL, error_message = NULL, retryable = NULL, outcome = NULL, retry_count = NULL, "
        "max_retry_count = NULL WHERE id = :failed_attempt",
        "UPDATE processing_failures SET errors = errors - 1 WHERE job_id = :failed_job",
    ),
    "jobs_follow_their_attempt": (
        "UPDATE embedding_jobs SET next_retry_at = next_retry_at - interval '1 s' WHERE id = :released_job",
    ),
    "jobs_claim_is_the_next_attempt": ("UPDATE embedding_jobs SET attempt_no = 1 WHERE id = :waiting_job",),
    "jobs_retry_count_counts_retries": ("UPDATE embedding_jobs SET retry_count = 1 WHERE id = :waiting_job",),
    "jobs_task_follows_stage": ("UPDATE embedding_jobs SET task = 'embed' WHERE id = :waiting_job",),
    "jobs_lease_at_most_a_day": ("UPDATE embedding_jobs SET lease_expires_at = 'infinity' WHERE id = :embedding_job",),
    "jobs_waiting_only_put_later": ("UPDATE embedding_jobs SET next_retry_at = 'infinity' WHERE id = :waiting_job",),
    "jobs_final_failure": ("DELETE FROM processing_failures WHERE job_id = :failed_job",),
    "versions_agree_with_latest_job": (
        "UPDATE document_versions SET status = 'CANCELLED', stopped_stage = 'UPLOADED' WHERE id = :waiting_version",
        NEW_EVENT + "(:waiting, :waiting_version, :waiting_job, 'CANCELLED')",
    ),
    "versions_stopped_have_no_active_embeddings": (
        "UPDATE embeddings SET status = 'ACTIVE' WHERE version_id = :cancelled_version",
        "UPDATE document_versions SET active_embedding_count = embedding_count WHERE id = :cancelled_version",
    ),
    "versions_superseded_have_no_active_embeddings": (
        "UPDATE embeddings SET status = 'ACTIVE' WHERE version_id = :superseded_version",
        "UPDATE document_versions SET active_embedding_count = embedding_count WHERE id = :superseded_version",
    ),
    "versions_being_built_have_no_stale_embeddings": (
        "UPDATE embeddings SET status = 'STALE' WHERE version_id = :embedding_version",
        "UPDATE document_versions SET active_embedding_count = 0 WHERE id = :embedding_version",
    ),
    "versions_chunking_has_text": ("DELETE FROM parsed_texts WHERE version_id = :embedding_version",),
    "versions_embedding_has_chunks": (
        "DELETE FROM embeddings WHERE version_id = :embedding_version",
        "DELETE FROM chunks WHERE version_id = :embedding_version",
        "UPDATE document_versions SET chunk_count = 0, embedding_count = 0, active_embedding_count = 0 "
        "WHERE id = :embedding_version",
    ),
    "versions_storing_has_embeddings": (
        "DELETE FROM embeddings WHERE version_id = :storing_version",
        "UPDATE document_versions SET embedding_count = 0, active_embedding_count = 0 WHERE id = :storing_version",
    ),
    "versions_indexed_become_current": (
        "UPDATE document_versions SET version_no = 3 WHERE id = :overtaken_first_version",
    ),
    "documents_pending_has_live_job": (
        "UPDATE documents SET status = 'PENDING' WHERE id = :cancelled",
        NEW_EVENT + "(:cancelled, NULL, NULL, 'DOCUMENT_PENDING')",
    ),
    "documents_stopped_has_no_live_job": (
        "UPDATE documents SET status = 'FAILED' WHERE id = :waiting",
        NEW_EVENT + "(:waiting, NULL, NULL, 'DOCUMENT_FAILED')",
    ),
    "documents_deleted_have_no_content": (
        "INSERT INTO parsed_texts (version_id, text, page_starts) VALUES (:deleted_version, 'left', '{}')",
    ),
    "documents_current_is_complete": (
        "UPDATE embeddings SET status = 'STALE' WHERE version_id = :indexed_version",
        "UPDATE document_versions SET active_embedding_count = 0 WHERE id = :indexed_version",
    ),
    "documents_current_is_own_version": (
        "UPDATE documents SET status = 'INDEXED', current_version_id = :indexed_version WHERE id = :failed",
        NEW_EVENT + "(:failed, :indexed_version, NULL, 'DOCUMENT_INDEXED')",
    ),
    "versions_owner_is_documents_owner": ("UPDATE documents SET owner_id = 'eve' WHERE id = :waiting",),
    "versions_model_known": ("UPDATE document_versions SET model_id = :nobody WHERE id = :waiting_version",),
    "jobs_ids_agree_with_version": ("UPDATE embedding_jobs SET owner_id = 'eve' WHERE id = :waiting_job",),
    "attempts_job_known": (
        "INSERT INTO indexing_attempts (job_id, attempt_no, worker_id, claim_token, status, finished_at) "
        "SELECT :nobody, 1, id, gen_random_uuid(), 'CANCELLED', now() FROM workers",
    ),
    "attempts_worker_known": ("UPDATE indexing_attempts SET worker_id = :nobody WHERE id = :indexed_attempt",),
    "attempts_runner_known": ("UPDATE indexing_attempts SET run_by = :nobody WHERE id = :indexed_attempt",),
    "attempts_failure_type_known": (
        "UPDATE indexing_attempts SET failure_type = 'SUN_SPOTS' WHERE id = :failed_attempt",
    ),
    "failures_job_known": (
        "INSERT INTO processing_failures (document_id, version_id, job_id, owner_id, stage, failure_type, "
        "retry_count, errors, final_failed_at) "
        "VALUES (:failed, :failed_version, :nobody, 'ann', 'PARSING', 'STORAGE_UNAVAILABLE', 0, '[]', now())",
    ),
    "failures_type_known": ("UPDATE processing_failures SET failure_type = 'SUN_SPOTS' WHERE job_id = :failed_job",),
    "notifications_document_known": ("UPDATE notifications SET document_id = :nobody WHERE document_id = :failed",),
    "notifications_version_known": ("UPDATE notifications SET version_id = :nobody WHERE document_id = :failed",),
    "parsed_texts_version_known": (
        "INSERT INTO parsed_texts (version_id, text, page_starts) VALUES (:nobody, 'left', '{}')",
    ),
    "chunks_version_known": (
        "INSERT INTO chunks (version_id, chunk_no, text, char_start, char_end, token_count, text_sha256) "
        "VALUES (:nobody, 0, 'a', 0, 1, 1, encode(sha256('a'), 'hex'))",
    ),
    "embeddings_chunk_is_versions_chunk": (
        "UPDATE embeddings SET chunk_id = chunk_id + :nobody WHERE version_id = :indexed_version",
    ),
    "embeddings_ids_agree_with_version": (
        "UPDATE embeddings SET owner_id = 'eve' WHERE version_id = :indexed_version",
    ),
    "versions_chunk_count_counts_chunks": (
        "UPDATE document_versions SET chunk_count = chunk_count + 1 WHERE id = :cancelled_version",
    ),
    "versions_embedding_count_counts_embeddings": (
        "UPDATE document_versions SET embedding_count = embedding_count - 1 WHERE id = :cancelled_version",
    ),
    "embeddings_have_models_dimensions": (
        "UPDATE embeddings SET embedding = '[1, 2]' WHERE version_id = :superseded_version",
    ),
    "chunks_never_change": ("UPDATE chunks SET text = upper(text) WHERE version_id = :indexed_version",),
    "versions_history": ("DELETE FROM indexing_events WHERE type = 'INDEXED' AND version_id = :superseded_version",),
    "attempts_history": ("DELETE FROM indexing_events WHERE type = 'RETRY' AND attempt_id = :released_attempt",),
    "documents_history": (
        "DELETE FROM indexing_events WHERE type = 'DOCUMENT_CANCELLED' AND document_id = :cancelled",
    ),
    "failures_never_change": ("UPDATE processing_failures SET errors = '[]' WHERE job_id = :failed_job",),
    "policies_cover_every_failure_type": (
        "DELETE FROM failure_policies WHERE failure_type = 'INDEXING_STATE_INCONSISTENT'",
    ),
}


@pytest.mark.parametrize("rule", BROKEN)
def test_a_row_that_breaks_a_rule_is_named_with_that_rule_and_no_other(world: World, rule: str) -> None:
    violations = world.break_with(*BROKEN[rule])
    assert {violation.rule for violation in violations} == {rule}
    for violation in violations:
        assert violation.row_id
        assert violation.what
        assert violation.remedy
        assert "{" not in violation.what + violation.remedy


def test_a_worker_that_is_not_there_is_missed_by_its_job_and_its_attempt(world: World) -> None:
    violations = world.break_with(
        "UPDATE embedding_jobs SET worker_id = :nobody WHERE id = :embedding_job",
        "UPDATE indexing_attempts SET worker_id = :nobody WHERE id = :embedding_attempt",
    )
    assert [(found.rule, found.row_id) for found in violations] == [
        ("jobs_worker_known", world.ids["embedding_job"]),
        ("attempts_worker_known", world.ids["embedding_attempt"]),
    ]


def test_a_claim_without_its_event_is_named_while_the_attempt_runs(world: World) -> None:
    violations = world.break_with("DELETE FROM indexing_events WHERE attempt_id = :embedding_attempt")
    assert [(found.rule, found.row_id) for found in violations] == [
        ("attempts_history", world.ids["embedding_attempt"])
    ]


def test_a_violation_says_what_is_wrong_and_what_to_do(world: World) -> None:
    [violation] = world.break_with("UPDATE embedding_jobs SET retry_count = 2 WHERE id = :waiting_job")
    assert violation.table == "embedding_jobs"
    assert violation.row_id == world.ids["waiting_job"]
    assert violation.what == "counts 2 retries; of its attempts 0 have the outcome RETRY"
    assert violation.remedy.startswith("find out who wrote past the triggers")


def test_events_that_were_pruned_are_not_missed(world: World) -> None:
    assert world.break_with("DELETE FROM indexing_events WHERE document_id = :indexed") == []


def test_of_each_rule_at_most_the_limit_is_listed(world: World) -> None:
    world.connection.execute(text("SET LOCAL session_replication_role = replica"))
    world.connection.execute(text("UPDATE embedding_jobs SET retry_count = retry_count + 1, max_retry_count = 9"))
    rules = [found.rule for found in check_invariants(world.connection, limit_per_rule=3)]
    assert rules.count("jobs_retry_count_counts_retries") == 3


def test_content_older_than_the_newest_is_judged_only_when_everything_is(world: World) -> None:
    world.break_with("UPDATE chunks SET text = upper(text) WHERE version_id = :superseded_version")
    assert check_invariants(world.connection, newest=1) == []
    assert {found.rule for found in check_invariants(world.connection, newest=None)} == {"chunks_never_change"}


SCHEMA = {
    "jobs_guard": ("ALTER TABLE embedding_jobs DISABLE TRIGGER jobs_guard", "the trigger jobs_guard is disabled"),
    "attempts_guard": (
        "ALTER TABLE indexing_attempts ENABLE REPLICA TRIGGER attempts_guard",
        "the trigger attempts_guard is disabled",
    ),
    "versions_history": (
        "DROP TRIGGER versions_history ON document_versions",
        "the trigger versions_history is missing",
    ),
    "jobs_check": ("DROP TRIGGER jobs_check ON embedding_jobs", "the trigger jobs_check is missing"),
    "jobs_claimed_iff_processing": (
        "ALTER TABLE embedding_jobs DROP CONSTRAINT jobs_claimed_iff_processing",
        "the constraint jobs_claimed_iff_processing is missing",
    ),
    "chunks_page_positive": (
        "ALTER TABLE chunks DROP CONSTRAINT chunks_page_positive, "
        "ADD CONSTRAINT chunks_page_positive CHECK (page_no >= 1) NOT VALID",
        "the constraint chunks_page_positive is not validated",
    ),
    "jobs_due": ("DROP INDEX jobs_due", "the index jobs_due is missing"),
    "jobs_one_live_per_version": (
        "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'jobs_one_live_per_version'::regclass",
        "the index jobs_one_live_per_version is not valid",
    ),
}


@pytest.mark.parametrize("rule", SCHEMA)
def test_what_no_longer_guards_the_tables_is_named(world: World, rule: str) -> None:
    statement, what = SCHEMA[rule]
    assert [(found.rule, found.what) for found in world.break_with(statement, replica=False)] == [(rule, what)]


def test_a_foreign_key_whose_own_triggers_are_disabled_is_named(world: World) -> None:
    violations = world.break_with("ALTER TABLE parsed_texts DISABLE TRIGGER ALL", replica=False)
    assert {found.rule for found in violations} == {
        "parsed_texts_never_change",
        "parsed_texts_only_while_parsing",
        "parsed_texts_version_known",
    }


def test_a_commit_check_that_is_not_deferred_is_named(world: World) -> None:
    [violation] = world.break_with(
        "DROP TRIGGER documents_check ON documents",
        "CREATE CONSTRAINT TRIGGER documents_check AFTER INSERT ON documents FOR EACH ROW "
        "EXECUTE FUNCTION check_at_commit()",
        replica=False,
    )
    assert (violation.rule, violation.what) == ("documents_check", "the trigger documents_check is not deferred")


def test_a_model_without_its_index_is_named(world: World) -> None:
    model_id = world.connection.execute(text("SELECT id FROM embedding_models")).scalar_one()
    [violation] = world.break_with(f"DROP INDEX embeddings_of_model_{model_id}", replica=False)
    assert (violation.rule, violation.row_id) == ("models_have_their_index", model_id)


def listed(names: dict[str, str]) -> set[tuple[str, str]]:
    return {(table, name) for table, of_table in names.items() for name in of_table.split()}


def there(connection: Connection, sql: str) -> set[tuple[str, str]]:
    return {(row[0], row[1]) for row in connection.execute(text(sql))}


def test_the_lists_of_what_must_be_there_are_what_the_migrations_make(connection: Connection) -> None:
    triggers = "SELECT tgrelid::regclass::text, tgname::text FROM pg_trigger WHERE NOT tgisinternal AND "
    assert there(connection, triggers + "tgconstraint = 0") == listed(TRIGGERS)
    assert there(connection, triggers + "tgconstraint <> 0") == listed(COMMIT_CHECKS)
    constraints = there(
        connection,
        "SELECT conrelid::regclass::text, conname::text FROM pg_constraint "
        "WHERE connamespace = 'public'::regnamespace AND conrelid <> 0 AND contype NOT IN ('n', 't')",
    )
    assert {found for found in constraints if found[0] != "alembic_version"} == listed(CONSTRAINTS)
    assert there(
        connection,
        "SELECT indrelid::regclass::text, indexrelid::regclass::text FROM pg_index "
        "WHERE indexrelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'public'::regnamespace) "
        "AND NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = indexrelid AND contype IN ('p', 'u'))",
    ) == listed(INDEXES)
