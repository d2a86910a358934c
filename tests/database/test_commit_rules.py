"""What must agree between rows when a transaction commits (rules 12 to 17 of the database), one session at a time."""

import pytest
from sqlalchemy import Connection

from domain.failures import FailureType
from domain.statuses import DocumentStatus, VersionStatus
from tests.database.lifecycle import (
    add_job,
    cancel,
    claim,
    claim_job,
    delete,
    end_attempt,
    end_job,
    move_document,
    move_version,
    release,
    set_current,
    stop,
    store_text,
    switch_embeddings,
    upload,
)
from tests.database.refusals import commit_checks, one, refused_at_commit, run, triggers_off
from tests.database.states import document_in, version_in

V = VersionStatus


def test_a_processing_job_has_its_attempt(connection: Connection) -> None:
    job = upload(connection)
    with refused_at_commit(connection, "jobs_processing_has_its_attempt"):
        claim_job(connection, job)


@pytest.mark.parametrize(
    "changed", ["claim_token = gen_random_uuid()", "worker_id = worker_id + 1", "status = 'PENDING'"]
)
def test_a_started_attempt_has_its_job(superuser: Connection, changed: str) -> None:
    """Rows that disagree already, as a careless repair could leave them, are found by the next change of either."""
    job = version_in(superuser, V.PARSING)
    triggers_off(superuser)
    unclaimed = ", worker_id = NULL, claim_token = NULL, lease_expires_at = NULL" if "PENDING" in changed else ""
    run(superuser, f"UPDATE embedding_jobs SET {changed}{unclaimed} WHERE id = :id", id=job.job_id)
    run(superuser, "SET LOCAL session_replication_role = origin")
    rule = "attempts_started_has_its_job" if "PENDING" in changed else "jobs_processing_has_its_attempt"
    with refused_at_commit(superuser, rule):
        run(superuser, "UPDATE indexing_attempts SET status = status WHERE id = :id", id=job.attempt_id)


def test_an_attempt_indexed_has_its_job_indexed(connection: Connection) -> None:
    job = version_in(connection, V.STORING)
    with refused_at_commit(connection, "jobs_processing_has_its_attempt"):
        end_attempt(connection, job, "INDEXED")


def test_a_job_indexed_has_its_version_indexed(connection: Connection) -> None:
    job = version_in(connection, V.STORING)
    with refused_at_commit(connection, "versions_agree_with_latest_job"):
        end_attempt(connection, job, "INDEXED")
        end_job(connection, job, "INDEXED")


def test_a_job_failed_has_its_version_failed(connection: Connection) -> None:
    job = version_in(connection, V.STORING)
    with refused_at_commit(connection, "versions_agree_with_latest_job"):
        end_attempt(connection, job, "FAILED", FailureType.DOCUMENT_CONTENT_INVALID)
        end_job(connection, job, "FAILED")


@pytest.mark.parametrize("status", ["FAILED", "CANCELLED"])
def test_a_version_agrees_with_how_its_job_ended(connection: Connection, status: str) -> None:
    job = version_in(connection, V.PARSING)
    other = {"FAILED": "CANCELLED", "CANCELLED": "FAILED"}[status]
    with refused_at_commit(connection, "versions_agree_with_latest_job"):
        end_attempt(connection, job, status, FailureType.DOCUMENT_CONTENT_INVALID)
        end_job(connection, job, status)
        move_version(connection, job, other)
        move_document(connection, job, other)


def test_a_cancelled_job_has_no_started_attempt(connection: Connection) -> None:
    job = version_in(connection, V.PARSING)
    with refused_at_commit(connection, "attempts_started_has_its_job"):
        stop(connection, job, "CANCELLED")


def test_a_retry_count_is_the_number_of_retries(superuser: Connection) -> None:
    job = upload(superuser)
    triggers_off(superuser)
    run(superuser, "UPDATE embedding_jobs SET retry_count = 1 WHERE id = :id", id=job.job_id)
    run(superuser, "SET LOCAL session_replication_role = origin")
    with refused_at_commit(superuser, "jobs_retry_count_counts_retries"):
        claim(superuser, job)


def test_released_attempts_count_for_nothing(connection: Connection) -> None:
    job = upload(connection)
    for _ in range(3):
        job = claim(connection, job)
        release(connection, job)
        commit_checks(connection)
    assert one(
        connection, "SELECT (attempt_no, retry_count) = (3, 0) FROM embedding_jobs WHERE id = :id", id=job.job_id
    )


def test_an_indexed_version_becomes_current(connection: Connection) -> None:
    job = version_in(connection, V.STORING)
    with refused_at_commit(connection, "versions_indexed_become_current"):
        end_attempt(connection, job, "INDEXED")
        end_job(connection, job, "INDEXED")
        move_version(connection, job, "INDEXED")
        switch_embeddings(connection, job, "STALE")


def test_a_newer_version_becomes_current_also_behind_an_older_one(connection: Connection) -> None:
    old = version_in(connection, V.INDEXED)
    new = version_in(connection, V.STORING, document_id=old.document_id)
    with refused_at_commit(connection, "versions_indexed_become_current"):
        end_attempt(connection, new, "INDEXED")
        end_job(connection, new, "INDEXED")
        move_version(connection, new, "INDEXED")
        switch_embeddings(connection, new, "STALE")


def test_a_superseded_version_has_no_active_embedding(connection: Connection) -> None:
    old = version_in(connection, V.INDEXED)
    new = version_in(connection, V.STORING, document_id=old.document_id)
    with refused_at_commit(connection, "versions_superseded_have_no_active_embeddings"):
        end_attempt(connection, new, "INDEXED")
        end_job(connection, new, "INDEXED")
        move_version(connection, new, "INDEXED")
        set_current(connection, new)


def test_a_version_that_completes_behind_a_newer_one_is_stale(connection: Connection) -> None:
    old = version_in(connection, V.STORING)
    version_in(connection, V.INDEXED, document_id=old.document_id)
    with refused_at_commit(connection, "versions_superseded_have_no_active_embeddings"):
        end_attempt(connection, old, "INDEXED")
        end_job(connection, old, "INDEXED")
        move_version(connection, old, "INDEXED")


def test_a_current_version_is_indexed_with_active_embeddings(connection: Connection) -> None:
    job = version_in(connection, V.STORING)
    with refused_at_commit(connection, "documents_current_is_complete"):
        set_current(connection, job)
    with refused_at_commit(connection, "documents_current_is_complete"):
        end_attempt(connection, job, "INDEXED")
        end_job(connection, job, "INDEXED")
        move_version(connection, job, "INDEXED")
        switch_embeddings(connection, job, "STALE")
        set_current(connection, job)


def test_a_stopped_version_has_no_active_embedding(connection: Connection) -> None:
    job = version_in(connection, V.STORING)
    with refused_at_commit(connection, "versions_stopped_have_no_active_embeddings"):
        end_attempt(connection, job, "CANCELLED")
        end_job(connection, job, "CANCELLED")
        move_version(connection, job, "CANCELLED")
        move_document(connection, job, "CANCELLED")


def test_a_pending_document_has_a_live_job(connection: Connection) -> None:
    job = version_in(connection, V.PARSING)
    with refused_at_commit(connection, "documents_pending_has_live_job"):
        end_attempt(connection, job, "CANCELLED")
        end_job(connection, job, "CANCELLED")
        move_version(connection, job, "CANCELLED")


@pytest.mark.parametrize("status", [DocumentStatus.FAILED, DocumentStatus.CANCELLED, DocumentStatus.DELETED])
def test_a_stopped_document_has_no_live_job(connection: Connection, status: DocumentStatus) -> None:
    document = document_in(connection, status)
    with refused_at_commit(connection, "documents_stopped_has_no_live_job"):
        upload(connection, document.document_id)
        run(
            connection,
            "UPDATE documents SET status = :status WHERE id = :id AND status = 'PENDING'",
            status=status,
            id=document.document_id,
        )


def test_a_document_with_another_live_job_goes_on(connection: Connection) -> None:
    first = version_in(connection, V.PARSING)
    upload(connection, first.document_id)
    cancel(connection, first)
    commit_checks(connection)
    assert one(connection, "SELECT status FROM documents WHERE id = :id", id=first.document_id) == "PENDING"


@pytest.mark.parametrize("status", [V.CANCELLED, V.INDEXED])
def test_a_deleted_document_has_no_content(connection: Connection, status: VersionStatus) -> None:
    version = version_in(connection, status, V.CHUNKING)  # text, at least
    with refused_at_commit(connection, "documents_deleted_have_no_content"):
        run(
            connection,
            "UPDATE documents SET status = 'DELETED', current_version_id = NULL WHERE id = :id",
            id=version.document_id,
        )


def test_a_deleted_document_s_version_is_not_retried(connection: Connection) -> None:
    version = version_in(connection, V.CANCELLED, V.PARSING)
    delete(connection, version)
    with refused_at_commit(connection, "documents_stopped_has_no_live_job"):
        add_job(connection, version)
        move_version(connection, version, "PARSING")


def test_a_deleted_document_s_name_is_free(connection: Connection) -> None:
    version = version_in(connection, V.INDEXED)
    delete(connection, version)
    run(
        connection,
        "INSERT INTO documents (owner_id, name) SELECT owner_id, name FROM documents WHERE id = :id",
        id=version.document_id,
    )


def test_a_savepoint_rolled_back_takes_no_check_with_it(connection: Connection) -> None:
    """The checks run inside the savepoint, and again at the commit that follows its end."""
    job = version_in(connection, V.PARSING)
    end_attempt(connection, job, "CANCELLED")
    with refused_at_commit(connection, "jobs_processing_has_its_attempt"):
        run(connection, "SELECT 1")
    with refused_at_commit(connection, "jobs_processing_has_its_attempt"):
        store_text(connection, job)


@pytest.mark.parametrize("isolation", ["REPEATABLE READ", "SERIALIZABLE"])
def test_changes_are_made_in_read_committed_transactions(connection: Connection, isolation: str) -> None:
    connection.rollback()
    run(connection, f"SET TRANSACTION ISOLATION LEVEL {isolation}")
    with refused_at_commit(connection, "commits_are_read_committed"):
        upload(connection)
