"""Cancelling what is being built of a document; what is searchable stays so."""

import pytest
from sqlalchemy import Connection

from domain.cancel import cancel_document
from domain.claim import claim_jobs
from domain.delete import delete_document
from domain.errors import AttemptNotCurrent, NotFound, NothingToCancel
from domain.failures import FailureType
from domain.statuses import Task, VersionStatus
from tests.domain.indexing import Indexing
from tests.domain.rows import column, count, dump, embeddings, events, last_event, row, statuses

STAGES = [VersionStatus.PARSING, VersionStatus.CHUNKING, VersionStatus.EMBEDDING, VersionStatus.STORING]


@pytest.mark.parametrize("stage", [None, *STAGES])
def test_a_cancellation_ends_job_attempt_version_and_document_at_every_stage(
    indexing: Indexing, connection: Connection, stage: VersionStatus | None
) -> None:
    uploaded = indexing.upload()
    claimed = None if stage is None else indexing.bring_to(stage)
    if claimed and stage == VersionStatus.EMBEDDING:
        indexing.embed(claimed, most=1)
    before = last_event(connection)
    assert cancel_document(connection, uploaded.document_id) == [uploaded.job_id]

    job = row(connection, "embedding_jobs", uploaded.job_id or 0)
    assert statuses(connection, uploaded.version_id) == ("CANCELLED", "CANCELLED", "CANCELLED")
    assert row(connection, "document_versions", uploaded.version_id).stopped_stage == (stage or "UPLOADED")
    assert (job.worker_id, job.claim_token, job.lease_expires_at, job.next_retry_at) == (None, None, None, None)
    assert embeddings(connection, uploaded.version_id).get("ACTIVE", 0) == 0
    written = events(connection, uploaded.document_id, before)
    assert [event for event in written if event != "EMBEDDINGS_STALE"] == ["CANCELLED", "DOCUMENT_CANCELLED"]
    if claimed:
        assert row(connection, "indexing_attempts", claimed.claim.attempt_id).status == "CANCELLED"
        with pytest.raises(AttemptNotCurrent):
            indexing.complete(claimed)
    assert claim_jobs(connection, indexing.worker_id, 10, list(Task)) == []
    assert count(connection, "notifications") == 0, "who cancels knows it"
    indexing.check_commit()


def test_a_job_that_waits_for_a_retry_is_cancelled(indexing: Indexing, connection: Connection) -> None:
    uploaded = indexing.upload()
    indexing.fail(indexing.bring_to(VersionStatus.CHUNKING), message="the last error")
    cancel_document(connection, uploaded.document_id)
    job = row(connection, "embedding_jobs", uploaded.job_id or 0)
    assert (job.status, job.retry_count, job.next_retry_at) == ("CANCELLED", 1, None)
    assert job.last_error_message == "the last error"
    assert row(connection, "document_versions", uploaded.version_id).stopped_stage == "CHUNKING"
    indexing.check_commit()


def test_every_live_version_is_cancelled_and_the_searchable_one_is_not(
    indexing: Indexing, connection: Connection
) -> None:
    first = indexing.index()
    others = [indexing.upload(content=str(number)) for number in range(1, 4)]
    indexing.bring_to(VersionStatus.EMBEDDING)
    assert cancel_document(connection, first.document_id) == [other.job_id for other in others]
    document = row(connection, "documents", first.document_id)
    assert (document.status, document.current_version_id) == ("INDEXED", first.version_id)
    assert embeddings(connection, first.version_id) == {"ACTIVE": 2}
    assert column(connection, "SELECT status FROM document_versions ORDER BY id") == ["INDEXED"] + ["CANCELLED"] * 3
    indexing.check_commit()


def test_only_the_document_asked_for_is_cancelled(indexing: Indexing, connection: Connection) -> None:
    uploaded, other = indexing.upload("a"), indexing.upload("b")
    cancel_document(connection, uploaded.document_id)
    assert statuses(connection, other.version_id) == ("PENDING", "UPLOADED", "PENDING")


@pytest.mark.parametrize("what", ["searchable", "failed", "cancelled"])
def test_a_document_without_a_live_job_has_nothing_to_cancel(
    indexing: Indexing, connection: Connection, what: str
) -> None:
    uploaded = indexing.upload()
    if what == "cancelled":
        cancel_document(connection, uploaded.document_id)
    elif what == "failed":
        indexing.fail(indexing.bring_to(VersionStatus.PARSING), FailureType.DOCUMENT_CONTENT_INVALID)
    else:
        indexing.bring_to(VersionStatus.INDEXED)
    before = dump(connection)
    with pytest.raises(NothingToCancel):
        cancel_document(connection, uploaded.document_id)
    assert dump(connection) == before


def test_the_document_of_another_owner_and_a_deleted_one_do_not_exist(
    indexing: Indexing, connection: Connection
) -> None:
    uploaded = indexing.upload()
    for document_id, owner_id in ((uploaded.document_id, "bob"), (0, None), (0, "ann")):
        with pytest.raises(NotFound):
            cancel_document(connection, document_id, owner_id)
    assert statuses(connection, uploaded.version_id) == ("PENDING", "UPLOADED", "PENDING")
    delete_document(connection, uploaded.document_id, "ann")
    with pytest.raises(NotFound):
        cancel_document(connection, uploaded.document_id, "ann")


def test_an_owner_cancels_his_own(indexing: Indexing, connection: Connection) -> None:
    uploaded = indexing.upload()
    assert cancel_document(connection, uploaded.document_id, "ann") == [uploaded.job_id]
