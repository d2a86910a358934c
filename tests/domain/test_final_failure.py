"""The last failure of a job: it ends version and perhaps document, and is told once."""

import pytest
from sqlalchemy import Connection

from domain.failures import FailureType
from domain.search import search
from domain.statuses import Outcome, VersionStatus
from tests.domain.indexing import Indexing
from tests.domain.rows import column, count, embeddings, events, last_event, one, row, statuses

STAGES = [VersionStatus.PARSING, VersionStatus.CHUNKING, VersionStatus.EMBEDDING, VersionStatus.STORING]
INVALID = FailureType.DOCUMENT_CONTENT_INVALID


@pytest.mark.parametrize("stage", STAGES)
def test_a_final_failure_ends_attempt_job_version_and_document(
    indexing: Indexing, connection: Connection, stage: VersionStatus
) -> None:
    uploaded = indexing.upload()
    claimed = indexing.bring_to(stage)
    if stage == VersionStatus.EMBEDDING:
        indexing.embed(claimed, most=1)
    active = embeddings(connection, uploaded.version_id).get("ACTIVE", 0)
    before = last_event(connection)
    result = indexing.fail(claimed, INVALID, "CORRUPT", "no page can be read")

    version = row(connection, "document_versions", uploaded.version_id)
    job = row(connection, "embedding_jobs", claimed.claim.job_id)
    assert (result.outcome, result.retryable, result.retry_count) == (Outcome.FAILED, False, 0)
    assert statuses(connection, uploaded.version_id) == ("FAILED", "FAILED", "FAILED")
    assert version.stopped_stage == stage
    assert (job.worker_id, job.claim_token, job.lease_expires_at, job.next_retry_at) == (None, None, None, None)
    assert (job.last_failure_type, job.last_error_message) == (INVALID, "no page can be read")
    assert embeddings(connection, uploaded.version_id) == ({"STALE": active} if active else {})
    # The attempt's events come first; the rest follows in the order of the writes.
    assert events(connection, uploaded.document_id, before) == [
        f"{stage}_FAILED",
        "FAILED",
        *(["EMBEDDINGS_STALE"] if active else []),
        "DOCUMENT_FAILED",
    ]
    indexing.check_commit()


def test_a_final_failure_is_recorded_with_every_error_and_told_once(indexing: Indexing, connection: Connection) -> None:
    indexing.retry_at_once()
    uploaded = indexing.upload(max_retry_count=2)
    indexing.fail(indexing.bring_to(VersionStatus.PARSING), message="first")
    indexing.fail(indexing.bring_to(VersionStatus.CHUNKING), FailureType.WORKER_INTERNAL_ERROR, "MEMORY", "second")
    assert count(connection, "notifications") == count(connection, "processing_failures") == 0
    last = indexing.fail(indexing.bring_to(VersionStatus.CHUNKING), INVALID, "NO_TEXT", "third")

    failure = connection.exec_driver_sql("SELECT * FROM processing_failures").one()
    notification = connection.exec_driver_sql("SELECT * FROM notifications").one()
    assert (failure.document_id, failure.version_id, failure.job_id) == (
        uploaded.document_id,
        uploaded.version_id,
        uploaded.job_id,
    )
    assert (failure.owner_id, failure.stage, failure.failure_type, failure.retry_count) == (
        "ann",
        "CHUNKING",
        INVALID,
        2,
    )
    assert failure.final_failed_at == last.failed_at
    assert [(error["attempt"], error["stage"], error["errorMessage"]) for error in failure.errors] == [
        (1, "PARSING", "first"),
        (2, "CHUNKING", "second"),
        (3, "CHUNKING", "third"),
    ]
    assert [error["failureReason"] for error in failure.errors] == [None, "MEMORY", "NO_TEXT"]
    assert (notification.owner_id, notification.document_id, notification.type) == (
        "ann",
        uploaded.document_id,
        "DOCUMENT_FAILED",
    )
    assert notification.payload["errorMessage"] == "third"
    assert notification.payload["searchable"] is False
    indexing.check_commit()


@pytest.mark.parametrize("stage", STAGES)
def test_an_older_version_stays_searchable_while_its_successor_fails_at_each_stage(
    indexing: Indexing, connection: Connection, stage: VersionStatus
) -> None:
    indexing.retry_at_once()
    first = indexing.index(passages=["the old text "])
    document = row(connection, "documents", first.document_id)
    found = search(connection, "ann", {indexing.model_id: [1.0, 0.0, 0.0]}, 10)
    second = indexing.upload(content="2")
    for outcome in ("RETRY", "RETRY", "RETRY", "FAILED"):
        claimed = indexing.bring_to(stage, ["the new text ", "and more"])
        assert indexing.fail(claimed, message="again").outcome == outcome
        now = row(connection, "documents", first.document_id)
        assert (now.status, now.current_version_id) == ("INDEXED", first.version_id)
        assert now == document, "not even touched"
        assert embeddings(connection, first.version_id) == {"ACTIVE": 1}
        assert search(connection, "ann", {indexing.model_id: [1.0, 0.0, 0.0]}, 10) == found
    assert [passage.text for passage in found] == ["the old text "]
    assert row(connection, "document_versions", second.version_id).status == "FAILED"
    assert embeddings(connection, second.version_id).get("ACTIVE", 0) == 0
    assert one(connection, "SELECT payload -> 'searchable' FROM notifications WHERE type = 'DOCUMENT_FAILED'") is True
    indexing.check_commit()


def test_a_document_waits_for_its_other_live_versions(indexing: Indexing, connection: Connection) -> None:
    first = indexing.upload()
    older = indexing.bring_to(VersionStatus.PARSING)
    indexing.upload(content="2")
    newer = indexing.bring_to(VersionStatus.PARSING)
    indexing.fail(newer, INVALID)
    assert row(connection, "documents", first.document_id).status == "PENDING"
    indexing.fail(older, INVALID)
    assert row(connection, "documents", first.document_id).status == "FAILED"
    assert count(connection, "processing_failures") == count(connection, "notifications") == 2
    indexing.check_commit()


def test_a_permanent_failure_leaves_the_retry_count_as_it_was(indexing: Indexing, connection: Connection) -> None:
    indexing.retry_at_once()
    indexing.upload()
    indexing.fail(indexing.bring_to(VersionStatus.PARSING))
    result = indexing.fail(indexing.bring_to(VersionStatus.PARSING), INVALID)
    assert (result.retry_count, result.outcome) == (1, Outcome.FAILED)
    assert column(connection, "SELECT retry_count FROM embedding_jobs") == [1]
    indexing.check_commit()
