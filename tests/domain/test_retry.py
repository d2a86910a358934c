"""Retrying a stopped version by hand: it goes on where it stopped, with what it has."""

import pytest
from sqlalchemy import Connection

from domain.cancel import cancel_document
from domain.claim import claim_jobs
from domain.complete import complete_attempt
from domain.delete import delete_document
from domain.errors import NotFound, NotRetryable
from domain.failures import FailureType
from domain.record import load_chunks_without_embedding
from domain.release import release_attempt
from domain.retry import retry_version
from domain.statuses import Task, VersionStatus
from tests.domain.indexing import Indexing
from tests.domain.rows import column, count, embeddings, events, last_event, one, row, statuses

STAGES = [VersionStatus.PARSING, VersionStatus.CHUNKING, VersionStatus.EMBEDDING, VersionStatus.STORING]
INVALID = FailureType.DOCUMENT_CONTENT_INVALID


@pytest.mark.parametrize("ending", ["fail", "cancel"])
@pytest.mark.parametrize("stage", STAGES)
def test_a_retry_goes_on_at_the_stage_that_stopped_and_uses_what_is_stored(
    indexing: Indexing, connection: Connection, stage: VersionStatus, ending: str
) -> None:
    uploaded = indexing.upload(max_retry_count=2)
    claimed = indexing.bring_to(stage)
    if stage == VersionStatus.EMBEDDING:
        indexing.embed(claimed, most=1)
    stored = embeddings(connection, uploaded.version_id)
    if ending == "fail":
        indexing.fail(claimed, INVALID)
    else:
        cancel_document(connection, uploaded.document_id)
    assert embeddings(connection, uploaded.version_id).get("ACTIVE", 0) == 0
    before = last_event(connection)

    job_id = retry_version(connection, uploaded.version_id)
    job = row(connection, "embedding_jobs", job_id)
    version = row(connection, "document_versions", uploaded.version_id)
    assert job_id != uploaded.job_id
    assert (job.status, job.attempt_no, job.retry_count, job.max_retry_count) == ("PENDING", 0, 0, 2)
    assert job.task == ("embed" if stage in (VersionStatus.EMBEDDING, VersionStatus.STORING) else "parse")
    assert (version.status, version.stopped_stage) == (stage, None)
    assert row(connection, "documents", uploaded.document_id).status == "PENDING"
    assert embeddings(connection, uploaded.version_id) == stored
    written = events(connection, uploaded.document_id, before)
    assert [event for event in written if event != "EMBEDDINGS_ACTIVE"] == ["MANUAL_RETRY", "DOCUMENT_PENDING"]
    assert ("EMBEDDINGS_ACTIVE" in written) == bool(stored)
    indexing.check_commit()

    again = indexing.claim()
    assert (again.claim.job_id, again.stage, again.attempt_no) == (job_id, stage, 1)
    release_attempt(connection, again.claim)
    if stage == VersionStatus.EMBEDDING:
        assert len(load_chunks_without_embedding(connection, uploaded.version_id)) == 1, "one of two is stored"
    indexing.bring_to(VersionStatus.INDEXED)
    assert statuses(connection, uploaded.version_id) == ("INDEXED", "INDEXED", "INDEXED")
    assert embeddings(connection, uploaded.version_id) == {"ACTIVE": 2}
    assert (count(connection, "parsed_texts"), count(connection, "chunks")) == (1, 2)
    indexing.check_commit()


def test_a_version_that_was_cancelled_before_it_was_claimed_starts_from_the_beginning(
    indexing: Indexing, connection: Connection
) -> None:
    uploaded = indexing.upload()
    cancel_document(connection, uploaded.document_id)
    retry_version(connection, uploaded.version_id)
    assert statuses(connection, uploaded.version_id) == ("PENDING", "UPLOADED", "PENDING")
    indexing.bring_to(VersionStatus.INDEXED)
    indexing.check_commit()


def test_the_history_of_earlier_jobs_is_kept(indexing: Indexing, connection: Connection) -> None:
    uploaded = indexing.upload()
    for number in range(3):
        indexing.fail(indexing.bring_to(VersionStatus.PARSING), INVALID, message=f"error {number}")
        retry_version(connection, uploaded.version_id)
    assert column(connection, "SELECT status FROM embedding_jobs ORDER BY id") == ["FAILED"] * 3 + ["PENDING"]
    assert column(connection, "SELECT last_error_message FROM embedding_jobs ORDER BY id") == [
        "error 0",
        "error 1",
        "error 2",
        None,
    ]
    assert count(connection, "processing_failures") == count(connection, "notifications") == 3
    indexing.check_commit()


def test_a_retried_job_has_its_whole_budget_again(indexing: Indexing, connection: Connection) -> None:
    indexing.retry_at_once()
    uploaded = indexing.upload(max_retry_count=1)
    for _ in range(2):
        outcomes = [indexing.fail(indexing.bring_to(VersionStatus.PARSING)).outcome for _ in range(2)]
        assert outcomes == ["RETRY", "FAILED"]
        retry_version(connection, uploaded.version_id)
    indexing.check_commit()


def test_a_searchable_version_stays_so_while_its_failed_successor_is_retried(
    indexing: Indexing, connection: Connection
) -> None:
    first = indexing.index()
    second = indexing.upload(content="2")
    indexing.fail(indexing.bring_to(VersionStatus.STORING), INVALID)
    retry_version(connection, second.version_id)
    document = row(connection, "documents", first.document_id)
    assert (document.status, document.current_version_id) == ("INDEXED", first.version_id)
    assert embeddings(connection, first.version_id) == {"ACTIVE": 2}
    indexing.bring_to(VersionStatus.INDEXED)
    assert one(connection, "SELECT current_version_id FROM documents") == second.version_id
    indexing.check_commit()


def test_a_retried_version_that_fails_again_has_no_active_embedding(indexing: Indexing, connection: Connection) -> None:
    uploaded = indexing.upload()
    indexing.fail(indexing.bring_to(VersionStatus.STORING), INVALID)
    retry_version(connection, uploaded.version_id)
    indexing.fail(indexing.bring_to(VersionStatus.STORING), INVALID)
    assert embeddings(connection, uploaded.version_id) == {"STALE": 2}
    indexing.check_commit()


def test_a_version_that_does_not_exist_is_not_found(connection: Connection) -> None:
    with pytest.raises(NotFound, match="version"):
        retry_version(connection, 0)


@pytest.mark.parametrize("stage", [None, *STAGES])
def test_a_version_that_waits_or_runs_is_not_retried(
    indexing: Indexing, connection: Connection, stage: VersionStatus | None
) -> None:
    uploaded = indexing.upload()
    if stage is not None:
        indexing.bring_to(stage)
    with pytest.raises(NotRetryable, match="already waiting or running"):
        retry_version(connection, uploaded.version_id)
    assert count(connection, "embedding_jobs") == 1


def test_a_version_that_is_searchable_is_not_retried(indexing: Indexing, connection: Connection) -> None:
    with pytest.raises(NotRetryable, match="already searchable"):
        retry_version(connection, indexing.index().version_id)


def test_only_the_newest_version_is_retried(indexing: Indexing, connection: Connection) -> None:
    first = indexing.upload()
    indexing.fail(indexing.bring_to(VersionStatus.PARSING), INVALID)
    second = indexing.upload(content="2")
    with pytest.raises(NotRetryable, match=f"version {second.version_id} of document .* is newer"):
        retry_version(connection, first.version_id)
    indexing.fail(indexing.bring_to(VersionStatus.PARSING), INVALID)
    with pytest.raises(NotRetryable, match="is newer"):
        retry_version(connection, first.version_id)
    retry_version(connection, second.version_id)


def test_a_version_of_a_deleted_document_is_not_retried(indexing: Indexing, connection: Connection) -> None:
    uploaded = indexing.upload()
    indexing.fail(indexing.bring_to(VersionStatus.PARSING), INVALID)
    delete_document(connection, uploaded.document_id)
    with pytest.raises(NotRetryable, match="deleted"):
        retry_version(connection, uploaded.version_id)


def test_a_refused_retry_leaves_the_retries_of_others_in_the_same_transaction(
    indexing: Indexing, connection: Connection
) -> None:
    stopped, running = indexing.upload("a"), indexing.upload("b")
    indexing.fail(indexing.bring_to(VersionStatus.PARSING), INVALID)
    indexing.bring_to(VersionStatus.PARSING)
    retry_version(connection, stopped.version_id)
    with pytest.raises(NotRetryable, match="already waiting or running"):
        retry_version(connection, running.version_id)
    indexing.check_commit()
    [claimed] = claim_jobs(connection, indexing.worker_id, 10, list(Task))
    assert claimed.version_id == stopped.version_id


def test_a_retried_version_older_than_the_current_one_cannot_exist(indexing: Indexing, connection: Connection) -> None:
    """A newer upload, even a failed one, shuts the way back."""
    first = indexing.upload()
    late = indexing.bring_to(VersionStatus.STORING)
    indexing.index(content="2")
    indexing.fail(late, INVALID)
    with pytest.raises(NotRetryable, match="is newer"):
        retry_version(connection, first.version_id)
    with pytest.raises(Exception, match="already ended FAILED"):
        complete_attempt(connection, late.claim)
