"""Each primary key, unique rule and foreign key, broken on a row that is otherwise right."""

import pytest
from sqlalchemy import Connection

from domain.statuses import VersionStatus
from tests.database.lifecycle import (
    Indexing,
    add_attempt,
    add_job,
    cancel,
    claim,
    claim_job,
    register_model,
    release,
    upload,
)
from tests.database.refusals import one, refused, run, triggers_off
from tests.database.states import version_in

V = VersionStatus

PRIMARY_KEYS = {
    "failure_policies_pkey": "failure_policies",
    "workers_pkey": "workers",
    "embedding_models_pkey": "embedding_models",
    "documents_pkey": "documents",
    "document_versions_pkey": "document_versions",
    "embedding_jobs_pkey": "embedding_jobs",
    "indexing_attempts_pkey": "indexing_attempts",
    "parsed_texts_pkey": "parsed_texts",
    "chunks_pkey": "chunks",
    "embeddings_pkey": "embeddings",
    "indexing_events_pkey": "indexing_events",
    "processing_failures_pkey": "processing_failures",
    "notifications_pkey": "notifications",
    "claim_hints_pkey": "claim_hints",
}


@pytest.mark.parametrize("rule", PRIMARY_KEYS)
def test_no_row_is_there_twice(superuser: Connection, rule: str) -> None:
    version_in(superuser, V.INDEXED)
    version_in(superuser, V.FAILED)
    triggers_off(superuser)
    table = PRIMARY_KEYS[rule]
    columns = one(
        superuser,
        "SELECT string_agg(quote_ident(column_name), ', ') FROM information_schema.columns "
        "WHERE table_schema = 'public' AND table_name = :table AND is_generated = 'NEVER'",
        table=table,
    )
    with refused(superuser, rule):
        run(
            superuser,
            f"INSERT INTO {table} ({columns}) OVERRIDING SYSTEM VALUE SELECT {columns} FROM {table} LIMIT 1",
        )


def test_a_live_document_s_name_is_its_owner_s_only_once(connection: Connection) -> None:
    with refused(connection, "documents_name_once_per_owner"):
        run(connection, "INSERT INTO documents (owner_id, name) VALUES ('owner', 'a'), ('owner', 'a')")


def test_a_version_number_is_given_once_in_a_document(connection: Connection) -> None:
    first = upload(connection)
    with refused(connection, "versions_number_once_per_document"):
        copy_version(connection, first, "1, NULL")


def test_a_request_makes_one_version_of_its_owner(connection: Connection) -> None:
    first = upload(connection)
    copy_version(connection, first, "2, 'request'")
    with refused(connection, "versions_request_once_per_owner"):
        copy_version(connection, first, "3, 'request'")


def copy_version(connection: Connection, of: Indexing, number_and_request: str) -> None:
    run(
        connection,
        "INSERT INTO document_versions (document_id, owner_id, storage_uri, model_id, version_no, request_id) "
        f"SELECT document_id, owner_id, storage_uri, model_id, {number_and_request} "
        "FROM document_versions WHERE id = :id",
        id=of.version_id,
    )


@pytest.mark.parametrize("status", [V.UPLOADED, V.PARSING])
def test_a_version_has_one_live_job(connection: Connection, status: VersionStatus) -> None:
    version = version_in(connection, status)
    with refused(connection, "jobs_one_live_per_version"):
        add_job(connection, version)


def test_a_claim_token_is_used_once(connection: Connection) -> None:
    first = version_in(connection, V.PARSING)
    release(connection, first)
    claim_job(connection, first)
    other = upload(connection)
    run(
        connection,
        "UPDATE embedding_jobs SET status = 'PROCESSING', attempt_no = 1, worker_id = :worker, "
        "claim_token = :token, lease_expires_at = now() WHERE id = :job",
        worker=other.worker_id,
        token=first.token,
        job=other.job_id,
    )
    with refused(connection, "attempts_claim_token_used_once"):
        add_attempt(connection, other)


@pytest.mark.parametrize(
    ("rule", "number", "status"),
    [("attempts_number_once_per_job", 1, "RELEASED"), ("attempts_one_started_per_job", 2, "STARTED")],
)
def test_a_job_has_one_attempt_of_a_number_and_one_started(
    superuser: Connection, rule: str, number: int, status: str
) -> None:
    job = version_in(superuser, V.PARSING)
    triggers_off(superuser)
    with refused(superuser, rule):
        run(
            superuser,
            "INSERT INTO indexing_attempts (job_id, attempt_no, worker_id, claim_token, status, finished_at) "
            "VALUES (:job, :number, :worker, gen_random_uuid(), :status, "
            "CASE :status WHEN 'STARTED' THEN NULL ELSE now() END)",
            job=job.job_id,
            number=number,
            worker=job.worker_id,
            status=status,
        )


def test_a_model_is_there_once(owner_connection: Connection) -> None:
    register_model(owner_connection)
    with refused(owner_connection, "models_name_and_dimensions_once"):
        run(owner_connection, "INSERT INTO embedding_models (name, dimensions) VALUES ('test:model', 3)")


def test_a_job_has_one_final_failure(owner_connection: Connection) -> None:
    version_in(owner_connection, V.FAILED)
    with refused(owner_connection, "failures_one_per_job"):
        copy_failure(owner_connection, "job_id", "failure_type")


def test_a_final_failure_names_a_job_and_a_type(owner_connection: Connection) -> None:
    version_in(owner_connection, V.FAILED)
    waiting = upload(owner_connection).job_id
    with refused(owner_connection, "failures_job_known"):
        copy_failure(owner_connection, "-1", "failure_type")
    with refused(owner_connection, "failures_type_known"):
        copy_failure(owner_connection, str(waiting), "'NO_SUCH_TYPE'")


def copy_failure(connection: Connection, job: str, failure_type: str) -> None:
    run(
        connection,
        "INSERT INTO processing_failures (document_id, version_id, job_id, owner_id, stage, failure_type, "
        f"retry_count, errors, final_failed_at) SELECT document_id, version_id, {job}, owner_id, stage, "
        f"{failure_type}, retry_count, errors, final_failed_at FROM processing_failures",
    )


def test_a_notification_names_a_document_and_a_version(owner_connection: Connection) -> None:
    version = upload(owner_connection)
    insert = (
        "INSERT INTO notifications (owner_id, document_id, version_id, type, payload) "
        "VALUES ('owner', :document, :version, 'DOCUMENT_INDEXED', '{}')"
    )
    with refused(owner_connection, "notifications_document_known"):
        run(owner_connection, insert, document=-1, version=version.version_id)
    with refused(owner_connection, "notifications_version_known"):
        run(owner_connection, insert, document=version.document_id, version=-1)


def test_a_version_names_a_model_and_its_document_s_owner(connection: Connection) -> None:
    document = upload(connection).document_id
    insert = (
        "INSERT INTO document_versions (document_id, owner_id, version_no, storage_uri, model_id) "
        "VALUES (:document, :owner, 2, 'file:///a', :model)"
    )
    with refused(connection, "versions_model_known"):
        run(connection, insert, document=document, owner="owner", model=-1)
    with refused(connection, "versions_owner_is_documents_owner"):
        run(connection, insert, document=document, owner="somebody else", model=register_model(connection))


def test_the_current_version_is_one_of_the_document(connection: Connection) -> None:
    document, other = version_in(connection, V.INDEXED), version_in(connection, V.INDEXED)
    with refused(connection, "documents_current_is_own_version"):
        run(
            connection,
            "UPDATE documents SET current_version_id = :other WHERE id = :id",
            other=other.version_id,
            id=document.document_id,
        )


@pytest.mark.parametrize("other", ["document_id", "owner_id"])
def test_a_job_repeats_the_ids_of_its_version(connection: Connection, other: str) -> None:
    version = version_in(connection, V.INDEXED)
    upload(connection)
    repeated = {"document_id": str(version.document_id), "owner_id": "'owner'"}
    repeated[other] = {"document_id": "(SELECT max(id) FROM documents)", "owner_id": "'somebody else'"}[other]
    with refused(connection, "jobs_ids_agree_with_version"):
        run(
            connection,
            "INSERT INTO embedding_jobs (version_id, document_id, owner_id, max_retry_count) "
            f"VALUES (:version, {repeated['document_id']}, {repeated['owner_id']}, 3)",
            version=version.version_id,
        )


def test_a_claim_and_a_run_name_workers(connection: Connection) -> None:
    job = upload(connection)
    with refused(connection, "jobs_worker_known"):
        run(
            connection,
            "UPDATE embedding_jobs SET status = 'PROCESSING', attempt_no = 1, worker_id = -1, "
            "claim_token = gen_random_uuid(), lease_expires_at = now() WHERE id = :job",
            job=job.job_id,
        )
    attempt = claim(connection, job)
    with refused(connection, "attempts_runner_known"):
        run(connection, "UPDATE indexing_attempts SET run_by = -1 WHERE id = :id", id=attempt.attempt_id)


def test_a_chunk_names_a_version(connection: Connection) -> None:
    with refused(connection, "chunks_version_known"):
        run(
            connection,
            "INSERT INTO chunks (version_id, chunk_no, text, char_start, char_end, token_count, text_sha256) "
            "VALUES (-1, 0, 'text', 0, 4, 1, repeat('0', 64))",
        )


def test_a_chunk_number_is_given_once_in_a_version(connection: Connection) -> None:
    version = version_in(connection, V.CHUNKING)
    with refused(connection, "chunks_number_once_per_version"):
        run(
            connection,
            "INSERT INTO chunks (version_id, chunk_no, text, char_start, char_end, token_count, text_sha256) "
            "SELECT :version, 0, 'text', 0, 4, 1, repeat('0', 64) FROM generate_series(1, 2)",
            version=version.version_id,
        )


EMBEDDING = "INSERT INTO embeddings (chunk_id, model_id, version_id, owner_id, embedding) "


def test_an_embedding_is_of_a_chunk_of_its_version(connection: Connection) -> None:
    version, other = version_in(connection, V.EMBEDDING), version_in(connection, V.EMBEDDING)
    with refused(connection, "embeddings_chunk_is_versions_chunk"):
        run(
            connection,
            EMBEDDING + "SELECT id, :model, :version, 'owner', '[1,1,1]' FROM chunks WHERE version_id = :other",
            model=version.model_id,
            version=version.version_id,
            other=other.version_id,
        )


@pytest.mark.parametrize(("owner", "model"), [("somebody else", "test:model"), ("owner", "test:other")])
def test_an_embedding_repeats_the_owner_and_the_model_of_its_version(
    connection: Connection, owner: str, model: str
) -> None:
    version = version_in(connection, V.EMBEDDING)
    model_id = one(connection, "SELECT register_model(:model, 3)", model=model)
    with refused(connection, "embeddings_ids_agree_with_version"):
        run(
            connection,
            EMBEDDING + "SELECT id, :model, version_id, :owner, '[1,1,1]' FROM chunks WHERE version_id = :version",
            model=model_id,
            owner=owner,
            version=version.version_id,
        )


def test_nothing_named_by_history_is_removed_even_by_the_owner(owner_connection: Connection) -> None:
    attempted = version_in(owner_connection, V.PARSING)
    cancel(owner_connection, attempted)
    with refused(owner_connection, "attempts_job_known"):
        run(owner_connection, "DELETE FROM embedding_jobs WHERE id = :id", id=attempted.job_id)
    with refused(owner_connection, "attempts_worker_known"):
        run(owner_connection, "DELETE FROM workers WHERE id = :id", id=attempted.worker_id)
    with refused(owner_connection, "parsed_texts_version_known"):
        parsed = version_in(owner_connection, V.CHUNKING)
        run(owner_connection, "DELETE FROM indexing_attempts WHERE job_id = :id", id=parsed.job_id)
        run(owner_connection, "DELETE FROM embedding_jobs WHERE id = :id", id=parsed.job_id)
        run(owner_connection, "DELETE FROM document_versions WHERE id = :id", id=parsed.version_id)
