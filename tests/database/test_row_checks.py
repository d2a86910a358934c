"""Each CHECK of each table, broken on a row that is otherwise right."""

import pytest
from sqlalchemy import Connection

from domain.statuses import VersionStatus
from tests.database.lifecycle import Indexing, add_attempt, claim_job, end_attempt, register_model, upload
from tests.database.refusals import not_permitted, refused, run, triggers_off
from tests.database.states import version_in

V = VersionStatus

LONG = "repeat('x', 256)"
VERSION = "INSERT INTO document_versions (document_id, owner_id, version_no, storage_uri, model_id, {0}) "
OF_DOCUMENT = "SELECT d.id, d.owner_id, {version_no}, {uri}, :model, {value} FROM documents d WHERE id = :document"

# rule, what the application role tries. The rows named are those of a claimed version that is EMBEDDING.
APPLICATION = [
    ("policies_base_delay_not_negative", "UPDATE failure_policies SET base_delay = '-1 second'"),
    ("policies_factor_at_least_one", "UPDATE failure_policies SET factor = 0.99"),
    ("policies_factor_at_least_one", "UPDATE failure_policies SET factor = 'NaN'"),
    ("policies_factor_at_least_one", "UPDATE failure_policies SET factor = 'Infinity'"),
    ("policies_max_delay_at_least_base", "UPDATE failure_policies SET max_delay = '9 seconds'"),
    ("policies_max_delay_at_least_base", "UPDATE failure_policies SET max_delay = 'infinity'"),
    ("workers_name_length", "INSERT INTO workers (name, queues, concurrency) VALUES ('', '{}', 1)"),
    ("workers_concurrency_positive", "INSERT INTO workers (name, queues, concurrency) VALUES ('w', '{}', 0)"),
    ("models_name_is_provider_and_model", "SELECT register_model('no-provider', 3)"),
    ("models_dimensions_fit_a_vector", "SELECT register_model('test:model', 0)"),
    ("models_dimensions_fit_a_vector", "SELECT register_model('test:model', 16001)"),
    ("documents_owner_length", "INSERT INTO documents (owner_id, name) VALUES ('', 'a')"),
    ("documents_owner_length", f"INSERT INTO documents (owner_id, name) VALUES ({LONG}, 'a')"),
    ("documents_name_length", "INSERT INTO documents (owner_id, name) VALUES ('owner', '')"),
    # 342 Korean syllables are 1,026 bytes.
    ("documents_name_length", "INSERT INTO documents (owner_id, name) VALUES ('owner', repeat('가', 342))"),
    ("documents_indexed_iff_current", "UPDATE documents SET current_version_id = :version WHERE id = :document"),
    ("documents_indexed_iff_current", "UPDATE documents SET status = 'INDEXED' WHERE id = :document"),
    ("jobs_claimed_iff_processing", "UPDATE embedding_jobs SET worker_id = :worker WHERE id = :pending"),
    ("jobs_claimed_iff_processing", "UPDATE embedding_jobs SET lease_expires_at = now() WHERE id = :pending"),
    ("jobs_claimed_iff_processing", "UPDATE embedding_jobs SET lease_expires_at = NULL WHERE id = :job"),
    ("jobs_next_retry_only_while_pending", "UPDATE embedding_jobs SET next_retry_at = now() WHERE id = :job"),
    ("attempts_status_known", "UPDATE indexing_attempts SET status = 'PAUSED' WHERE id = :attempt"),
    ("attempts_started_iff_unfinished", "UPDATE indexing_attempts SET finished_at = now() WHERE id = :attempt"),
    ("attempts_failed_iff_explained", "UPDATE indexing_attempts SET error_message = 'x' WHERE id = :attempt"),
    ("attempts_failed_iff_explained", "UPDATE indexing_attempts SET next_retry_at = now() WHERE id = :attempt"),
    (
        "attempts_failed_iff_explained",
        "UPDATE indexing_attempts SET status = 'FAILED', failure_type = 'STORAGE_UNAVAILABLE' WHERE id = :attempt",
    ),
    (
        "attempts_error_message_length",
        "UPDATE indexing_attempts SET status = 'FAILED', failure_type = 'STORAGE_UNAVAILABLE', "
        "error_message = E' \\n' WHERE id = :attempt",
    ),
    (
        "attempts_error_message_length",
        "UPDATE indexing_attempts SET status = 'FAILED', failure_type = 'STORAGE_UNAVAILABLE', "
        "error_message = repeat('가', 2731) WHERE id = :attempt",
    ),
    (
        "attempts_failure_reason_is_a_word",
        "UPDATE indexing_attempts SET status = 'FAILED', failure_type = 'STORAGE_UNAVAILABLE', "
        "error_message = 'x', failure_reason = 'two words' WHERE id = :attempt",
    ),
    (
        "parsed_texts_not_blank",
        "INSERT INTO parsed_texts (version_id, text, page_starts) VALUES (:parsing, E' \\n', '{0}')",
    ),
    (
        "parsed_texts_metadata_is_object",
        "INSERT INTO parsed_texts (version_id, text, page_starts, metadata) VALUES (:parsing, 'x', '{0}', '[]')",
    ),
    (
        "embeddings_not_all_zero",
        "INSERT INTO embeddings (chunk_id, model_id, version_id, owner_id, embedding) "
        "SELECT id, :model, version_id, 'owner', '[0,0,0]' FROM chunks WHERE version_id = :version",
    ),
    (
        "embeddings_status_known",
        "INSERT INTO embeddings (chunk_id, model_id, version_id, owner_id, embedding, status) "
        "SELECT id, :model, version_id, 'owner', '[1,1,1]', 'OLD' FROM chunks WHERE version_id = :version",
    ),
]

# rule, column, value: one column of a new version.
VERSIONS = [
    ("versions_sha256_is_hex", "content_sha256", "repeat('A', 64)"),
    ("versions_media_type_length", "media_type", "''"),
    ("versions_size_not_negative", "size_bytes", "-1"),
    ("versions_request_id_length", "request_id", LONG),
    ("versions_stopped_iff_stage_kept", "stopped_stage", "'PARSING'"),
    ("versions_indexed_iff_dated", "indexed_at", "now()"),
]

# rule, column, value: one column of a new chunk.
CHUNKS = [
    ("chunks_number_not_negative", "chunk_no", "-1"),
    ("chunks_not_blank", "text", "'    '"),
    ("chunks_offsets_span_the_text", "char_end", "5"),
    ("chunks_offsets_span_the_text", "char_start", "-1"),
    ("chunks_page_positive", "page_no", "0"),
    ("chunks_tokens_positive", "token_count", "0"),
    ("chunks_sha256_is_hex", "text_sha256", "'abc'"),
]

# rule, what the owner tries, since the application role may not write there at all.
OWNER = [
    ("policies_type_is_a_word", "INSERT INTO failure_policies (failure_type, retryable) VALUES ('two words', true)"),
    ("versions_counts_possible", "UPDATE document_versions SET embedding_count = chunk_count + 1 WHERE id = :version"),
    ("versions_counts_possible", "UPDATE document_versions SET active_embedding_count = -1 WHERE id = :version"),
    (
        "failures_errors_are_a_list",
        "INSERT INTO processing_failures (document_id, version_id, job_id, owner_id, stage, failure_type, "
        "retry_count, errors, final_failed_at) VALUES (:document, :version, :job, 'owner', 'PARSING', "
        "'WORKER_INTERNAL_ERROR', 0, '{}', now())",
    ),
    (
        "notifications_type_known",
        "INSERT INTO notifications (owner_id, document_id, version_id, type, payload) "
        "VALUES ('owner', :document, :version, 'DOCUMENT_LOST', '{}')",
    ),
    ("claim_hints_only_row", "INSERT INTO claim_hints (only_row) VALUES (false)"),
]

# rule, what a trigger refuses first for everyone else: the CHECK holds when triggers are off, as in a restore.
BEHIND_THE_TRIGGERS = [
    ("documents_status_known", "UPDATE documents SET status = 'LOST' WHERE id = :document"),
    ("versions_status_known", "UPDATE document_versions SET status = 'LOST' WHERE id = :version"),
    (
        "versions_stopped_stage_known",
        "UPDATE document_versions SET status = 'FAILED', stopped_stage = 'FAILED' WHERE id = :version",
    ),
    ("jobs_status_known", "UPDATE embedding_jobs SET status = 'LOST' WHERE id = :pending"),
    ("jobs_task_known", "UPDATE embedding_jobs SET task = 'store' WHERE id = :job"),
    ("jobs_attempt_no_not_negative", "UPDATE embedding_jobs SET attempt_no = -1 WHERE id = :job"),
    ("jobs_retry_count_within_budget", "UPDATE embedding_jobs SET retry_count = 4 WHERE id = :job"),
    ("jobs_retry_count_within_budget", "UPDATE embedding_jobs SET retry_count = -1 WHERE id = :job"),
    ("attempts_number_positive", "UPDATE indexing_attempts SET attempt_no = 0 WHERE id = :attempt"),
    (
        "attempts_outcome_known",
        "UPDATE indexing_attempts SET status = 'FAILED', finished_at = now(), failed_stage = 'PARSING', "
        "failure_type = 'STORAGE_UNAVAILABLE', error_message = 'x', retryable = true, retry_count = 1, "
        "max_retry_count = 3, outcome = 'MAYBE' WHERE id = :attempt",
    ),
    (
        "attempts_retry_iff_dated",
        "UPDATE indexing_attempts SET status = 'FAILED', finished_at = now(), failed_stage = 'PARSING', "
        "failure_type = 'STORAGE_UNAVAILABLE', error_message = 'x', retryable = true, retry_count = 1, "
        "max_retry_count = 3, outcome = 'RETRY' WHERE id = :attempt",
    ),
]


def rows(connection: Connection) -> dict[str, object]:
    """Ids to break rules with."""
    embedding: Indexing = version_in(connection, V.EMBEDDING)
    return {
        "document": embedding.document_id,
        "version": embedding.version_id,
        "job": embedding.job_id,
        "attempt": embedding.attempt_id,
        "worker": embedding.worker_id,
        "model": embedding.model_id,
        "pending": upload(connection).job_id,
        "parsing": version_in(connection, V.PARSING).version_id,
    }


def named(values: dict[str, object], sql: str) -> dict[str, object]:
    return {name: value for name, value in values.items() if f":{name}" in sql}


@pytest.mark.parametrize(("rule", "sql"), APPLICATION)
def test_the_application_role_breaks_no_row_rule(connection: Connection, rule: str, sql: str) -> None:
    values = rows(connection)
    with refused(connection, rule):
        run(connection, sql, **named(values, sql))


@pytest.mark.parametrize(("rule", "sql"), OWNER)
def test_the_owner_breaks_no_row_rule_where_the_application_may_not_write(
    connection: Connection, owner_connection: Connection, rule: str, sql: str
) -> None:
    with not_permitted(connection):
        values = rows(connection)
        run(connection, sql, **named(values, sql))
    connection.rollback()  # both have made the same model: one would wait for the other
    values = rows(owner_connection)
    with refused(owner_connection, rule):
        run(owner_connection, sql, **named(values, sql))


@pytest.mark.parametrize(("rule", "sql"), BEHIND_THE_TRIGGERS)
def test_a_row_rule_holds_without_the_triggers(superuser: Connection, rule: str, sql: str) -> None:
    values = rows(superuser)
    triggers_off(superuser)
    with refused(superuser, rule):
        run(superuser, sql, **named(values, sql))


@pytest.mark.parametrize(("rule", "column", "value"), VERSIONS)
def test_a_version_is_born_with_sensible_values(connection: Connection, rule: str, column: str, value: str) -> None:
    document = upload(connection).document_id
    with refused(connection, rule):
        insert_version(connection, document, column=column, value=value)


@pytest.mark.parametrize(
    ("rule", "changed"),
    [
        ("versions_number_positive", {"version_no": "0"}),
        ("versions_storage_uri_length", {"uri": "''"}),
        ("versions_storage_uri_length", {"uri": "repeat('x', 4097)"}),
    ],
)
def test_a_version_is_born_with_a_number_and_a_source(
    connection: Connection, rule: str, changed: dict[str, str]
) -> None:
    document = upload(connection).document_id
    with refused(connection, rule):
        insert_version(connection, document, **changed)


def insert_version(
    connection: Connection,
    document: int,
    version_no: str = "2",
    uri: str = "'file:///a'",
    column: str = "media_type",
    value: str = "'text/plain'",
) -> None:
    run(
        connection,
        VERSION.format(column) + OF_DOCUMENT.format(version_no=version_no, uri=uri, value=value),
        model=register_model(connection),
        document=document,
    )


@pytest.mark.parametrize(("rule", "column", "value"), CHUNKS)
def test_a_chunk_is_born_with_sensible_values(connection: Connection, rule: str, column: str, value: str) -> None:
    values = {
        "chunk_no": "0",
        "text": "'text'",
        "char_start": "0",
        "char_end": "4",
        "page_no": "1",
        "token_count": "1",
        "text_sha256": "repeat('0', 64)",
    } | {column: value}
    version = version_in(connection, V.CHUNKING)
    with refused(connection, rule):
        run(
            connection,
            f"INSERT INTO chunks (version_id, {', '.join(values)}) VALUES (:version, {', '.join(values.values())})",
            version=version.version_id,
        )


@pytest.mark.parametrize("budget", [-1, 1001])
def test_a_job_is_born_with_a_sensible_budget_of_retries(connection: Connection, budget: int) -> None:
    with refused(connection, "jobs_max_retry_count_sensible"):
        upload(connection, max_retry_count=budget)


def test_an_attempt_fails_in_a_stage(connection: Connection) -> None:
    job = upload(connection)
    claim_job(connection, job)
    attempt = add_attempt(connection, job)
    with refused(connection, "attempts_failed_stage_known"):
        end_attempt(connection, attempt, "FAILED")
