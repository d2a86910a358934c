"""Rows are born only in the first status, without a past; nothing about where they came from changes later."""

import pytest
from sqlalchemy import Connection

from domain.statuses import AttemptStatus, DocumentStatus, JobStatus, VersionStatus
from tests.database.lifecycle import (
    Indexing,
    add_job,
    claim_job,
    register_model,
    register_worker,
    to_chunking,
    upload,
)
from tests.database.refusals import refused, refused_at_commit, run
from tests.database.states import job_in, version_in

V = VersionStatus


@pytest.mark.parametrize("status", [status for status in DocumentStatus if status != DocumentStatus.PENDING])
def test_a_document_is_born_pending(connection: Connection, status: DocumentStatus) -> None:
    with refused(connection, "documents_born_pending"):
        run(connection, "INSERT INTO documents (owner_id, name, status) VALUES ('owner', 'a', :status)", status=status)


def test_a_document_is_born_without_a_current_version(connection: Connection) -> None:
    version = version_in(connection, V.INDEXED)
    with refused(connection, "documents_born_pending"):
        run(
            connection,
            "INSERT INTO documents (owner_id, name, current_version_id) VALUES ('owner', 'a', :version)",
            version=version.version_id,
        )


@pytest.mark.parametrize("status", [status for status in V if status != V.UPLOADED])
def test_a_version_is_born_uploaded(connection: Connection, status: VersionStatus) -> None:
    document = upload(connection)
    with refused(connection, "versions_born_uploaded"):
        run(
            connection,
            "INSERT INTO document_versions (document_id, owner_id, version_no, storage_uri, model_id, status) "
            "VALUES (:document, 'owner', 2, 'file:///a', :model, :status)",
            document=document.document_id,
            model=register_model(connection),
            status=status,
        )


@pytest.mark.parametrize("counters", ["1, 0, 0", "1, 1, 1"])
def test_a_version_is_born_without_content(owner_connection: Connection, counters: str) -> None:
    document = upload(owner_connection)
    with refused(owner_connection, "versions_born_uploaded"):
        run(
            owner_connection,
            "INSERT INTO document_versions (document_id, owner_id, version_no, storage_uri, model_id, chunk_count, "
            f"embedding_count, active_embedding_count) VALUES (:document, 'owner', 2, 'file:///a', :model, {counters})",
            document=document.document_id,
            model=register_model(owner_connection),
        )


@pytest.mark.parametrize("status", [status for status in JobStatus if status != JobStatus.PENDING])
def test_a_job_is_born_pending(connection: Connection, status: JobStatus) -> None:
    version = version_in(connection, V.FAILED)
    with refused(connection, "jobs_born_pending"):
        run(
            connection,
            "INSERT INTO embedding_jobs (version_id, document_id, owner_id, max_retry_count, status) "
            "VALUES (:version, :document, 'owner', 3, :status)",
            version=version.version_id,
            document=version.document_id,
            status=status,
        )


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("attempt_no", "1"),
        ("retry_count", "1"),
        ("next_retry_at", "now()"),
        ("last_failure_type", "'WORKER_INTERNAL_ERROR'"),
        ("last_failure_reason", "'TIME_LIMIT'"),
        ("last_error_message", "'it broke'"),
        ("last_failed_at", "now()"),
    ],
)
def test_a_job_is_born_without_a_past(connection: Connection, column: str, value: str) -> None:
    version = version_in(connection, V.FAILED)
    with refused(connection, "jobs_born_pending"):
        run(
            connection,
            f"INSERT INTO embedding_jobs (version_id, document_id, owner_id, max_retry_count, {column}) "
            f"VALUES (:version, :document, 'owner', 3, {value})",
            version=version.version_id,
            document=version.document_id,
        )


@pytest.mark.parametrize("status", [status for status in AttemptStatus if status != AttemptStatus.STARTED])
def test_an_attempt_is_born_started(connection: Connection, status: AttemptStatus) -> None:
    job = job_in(connection, JobStatus.PENDING)
    claim_job(connection, job)
    with refused(connection, "attempts_born_of_a_claim"):
        run(
            connection,
            "INSERT INTO indexing_attempts (job_id, attempt_no, worker_id, claim_token, status) "
            "SELECT id, attempt_no, worker_id, claim_token, :status FROM embedding_jobs WHERE id = :job",
            status=status,
            job=job.job_id,
        )


@pytest.mark.parametrize(
    "changed", ["id = DEFAULT", "owner_id = 'somebody else'", "name = 'other'", "created_at = now()"]
)
def test_a_document_keeps_its_owner_its_name_and_its_birth(connection: Connection, changed: str) -> None:
    document = version_in(connection, V.INDEXED)
    with refused(connection, "documents_identity_never_changes"):
        run(connection, f"UPDATE documents SET {changed} WHERE id = :id", id=document.document_id)


@pytest.mark.parametrize(
    "changed",
    [
        "id = DEFAULT",
        "document_id = (SELECT max(id) FROM documents)",
        "owner_id = 'somebody else'",
        "version_no = 2",
        "storage_uri = 'file:///b'",
        "model_id = model_id + 1",
        "request_id = 'other'",
        "created_at = now()",
        "content_sha256 = repeat('1', 64)",
        "content_sha256 = NULL",
        "size_bytes = 2",
        "size_bytes = NULL",
        "media_type = 'text/plain'",
    ],
)
def test_a_version_keeps_what_it_was_made_from(owner_connection: Connection, changed: str) -> None:
    version = version_in(owner_connection, V.PARSING)
    upload(owner_connection)
    learn(owner_connection, version, "content_sha256 = repeat('0', 64), size_bytes = 1")
    to_chunking(owner_connection, version)
    with refused(owner_connection, "versions_identity_never_changes"):
        learn(owner_connection, version, changed)


def learn(connection: Connection, of: Indexing, changed: str) -> None:
    run(connection, f"UPDATE document_versions SET {changed} WHERE id = :id", id=of.version_id)


@pytest.mark.parametrize("learned", ["content_sha256 = repeat('0', 64)", "size_bytes = 1", "media_type = 'text/plain'"])
def test_what_the_bytes_are_is_learned_only_while_parsing(connection: Connection, learned: str) -> None:
    for status in V:
        version = version_in(connection, status)
        if status == V.PARSING:
            learn(connection, version, learned)
        else:
            with refused(connection, "versions_identity_never_changes"):
                learn(connection, version, learned)


def test_bytes_once_known_stay_the_same_also_while_parsing(connection: Connection) -> None:
    version = version_in(connection, V.PARSING)
    learn(connection, version, "content_sha256 = repeat('0', 64), size_bytes = 1, media_type = 'text/plain'")
    learn(connection, version, "media_type = 'application/pdf'")  # a better guess
    for changed in ("content_sha256 = repeat('1', 64)", "size_bytes = 2", "size_bytes = NULL"):
        with refused(connection, "versions_identity_never_changes"):
            learn(connection, version, changed)


@pytest.mark.parametrize(
    "changed",
    [
        "id = DEFAULT",
        "version_id = (SELECT max(id) FROM document_versions)",
        "document_id = (SELECT max(id) FROM documents)",
        "owner_id = 'somebody else'",
        "created_at = created_at - interval '1 hour'",
        "last_failure_type = 'STORAGE_UNAVAILABLE'",
        "last_failure_reason = 'OTHER'",
        "last_error_message = 'other'",
        "last_failed_at = now()",
    ],
)
def test_a_job_keeps_what_it_is_for_and_its_last_error(connection: Connection, changed: str) -> None:
    job = job_in(connection, JobStatus.PENDING)
    upload(connection)
    with refused(connection, "jobs_identity_never_changes"):
        run(connection, f"UPDATE embedding_jobs SET {changed} WHERE id = :id", id=job.job_id)


@pytest.mark.parametrize("status", [JobStatus.PENDING, JobStatus.PROCESSING])
def test_a_job_keeps_its_budget_of_retries(connection: Connection, status: JobStatus) -> None:
    job = job_in(connection, status)
    with refused(connection, "jobs_max_retry_count_never_changes"):
        run(connection, "UPDATE embedding_jobs SET max_retry_count = 9 WHERE id = :id", id=job.job_id)


@pytest.mark.parametrize("changed", ["id = DEFAULT", "name = 'other'", "started_at = now()", "stopped_at = NULL"])
def test_a_worker_keeps_its_name_and_its_times(connection: Connection, changed: str) -> None:
    worker = register_worker(connection)
    run(connection, "UPDATE workers SET stopped_at = now() WHERE id = :id", id=worker)
    with refused(connection, "workers_identity_never_changes"):
        run(connection, f"UPDATE workers SET {changed} WHERE id = :id", id=worker)


def test_a_document_is_not_born_without_a_job(connection: Connection) -> None:
    with refused_at_commit(connection, "documents_pending_has_live_job"):
        run(connection, "INSERT INTO documents (owner_id, name) VALUES ('owner', 'a')")


def test_a_version_is_not_born_without_a_job(connection: Connection) -> None:
    document = version_in(connection, V.INDEXED)
    with refused_at_commit(connection, "versions_agree_with_latest_job"):
        run(
            connection,
            "INSERT INTO document_versions (document_id, owner_id, version_no, storage_uri, model_id) "
            "VALUES (:document, 'owner', 2, 'file:///a', :model)",
            document=document.document_id,
            model=document.model_id,
        )


@pytest.mark.parametrize("status", [V.INDEXED, V.FAILED, V.CANCELLED])
def test_a_version_that_ended_gets_no_job_without_being_retried(connection: Connection, status: VersionStatus) -> None:
    version = version_in(connection, status)
    with refused_at_commit(connection, "versions_agree_with_latest_job"):
        add_job(connection, version)
