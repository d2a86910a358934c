"""Deleting a document, at any time: nothing of its content is left, and its history is."""

import pytest
from sqlalchemy import Connection

from domain.cancel import cancel_document
from domain.claim import claim_jobs
from domain.delete import delete_document
from domain.errors import AttemptNotCurrent, NotFound
from domain.failures import FailureType
from domain.record import record_embeddings
from domain.search import search
from domain.statuses import Task, VersionStatus
from tests.domain.indexing import Indexing
from tests.domain.rows import column, count, dump, events, last_event, row

STAGES = [VersionStatus.PARSING, VersionStatus.CHUNKING, VersionStatus.EMBEDDING, VersionStatus.STORING]


def content(connection: Connection) -> tuple[int, int, int]:
    return count(connection, "parsed_texts"), count(connection, "chunks"), count(connection, "embeddings")


@pytest.mark.parametrize("stage", [None, *STAGES, VersionStatus.INDEXED])
def test_a_document_is_deleted_at_every_stage_with_all_its_content(
    indexing: Indexing, connection: Connection, stage: VersionStatus | None
) -> None:
    uploaded = indexing.upload()
    claimed = None if stage is None else indexing.bring_to(stage)
    if claimed and stage == VersionStatus.EMBEDDING:
        indexing.embed(claimed, most=1)
    before = last_event(connection)
    delete_document(connection, uploaded.document_id)

    document = row(connection, "documents", uploaded.document_id)
    assert (document.status, document.current_version_id) == ("DELETED", None)
    assert content(connection) == (0, 0, 0)
    assert column(connection, "SELECT status FROM embedding_jobs") == ["INDEXED" if stage == "INDEXED" else "CANCELLED"]
    assert "DOCUMENT_DELETED" in events(connection, uploaded.document_id, before)
    assert search(connection, "ann", {indexing.model_id: [1.0, 0.0, 0.0]}, 10) == []
    assert claim_jobs(connection, indexing.worker_id, 10, list(Task)) == []
    indexing.check_commit()
    if claimed and stage == VersionStatus.EMBEDDING:
        with pytest.raises(AttemptNotCurrent):
            record_embeddings(connection, claimed.claim, [1], [[1, 2, 3]])


@pytest.mark.parametrize("ending", ["failed", "cancelled", "waiting for a retry"])
def test_a_stopped_document_is_deleted(indexing: Indexing, connection: Connection, ending: str) -> None:
    other = indexing.upload("running.txt")
    indexing.bring_to(VersionStatus.EMBEDDING)
    uploaded = indexing.upload()
    claimed = indexing.bring_to(VersionStatus.STORING)
    if ending == "cancelled":
        cancel_document(connection, uploaded.document_id)
    else:
        failed = FailureType.DOCUMENT_CONTENT_INVALID if ending == "failed" else FailureType.STORAGE_UNAVAILABLE
        indexing.fail(claimed, failed)
    delete_document(connection, uploaded.document_id)
    assert row(connection, "documents", uploaded.document_id).status == "DELETED"
    assert row(connection, "document_versions", other.version_id).status == "EMBEDDING"
    assert content(connection) == (1, 2, 0)
    indexing.check_commit()


def test_all_versions_of_a_document_are_deleted_and_nothing_of_another(
    indexing: Indexing, connection: Connection
) -> None:
    kept = indexing.index("kept.txt")
    first = indexing.index()
    indexing.index(content="2")
    indexing.upload(content="3")
    indexing.fail(indexing.bring_to(VersionStatus.STORING), FailureType.DOCUMENT_CONTENT_INVALID)
    indexing.upload(content="4")
    indexing.bring_to(VersionStatus.STORING)
    indexing.upload(content="5")
    delete_document(connection, first.document_id)
    assert content(connection) == (1, 2, 2)
    assert column(connection, "SELECT DISTINCT version_id FROM embeddings") == [kept.version_id]
    assert [passage.document_id for passage in search(connection, "ann", {indexing.model_id: [1.0, 0, 0]}, 10)] == [
        kept.document_id
    ] * 2
    assert set(
        column(connection, "SELECT chunk_count FROM document_versions WHERE document_id <> :k", k=kept.document_id)
    ) == {0}
    indexing.check_commit()


def test_the_history_of_a_deleted_document_stays(indexing: Indexing, connection: Connection) -> None:
    uploaded = indexing.upload()
    indexing.fail(indexing.bring_to(VersionStatus.PARSING), FailureType.DOCUMENT_CONTENT_INVALID)
    before = events(connection, uploaded.document_id)
    delete_document(connection, uploaded.document_id)
    assert events(connection, uploaded.document_id) == [*before, "DOCUMENT_DELETED"]
    for table in ("document_versions", "embedding_jobs", "indexing_attempts", "processing_failures", "notifications"):
        assert count(connection, table) == 1


def test_a_deletion_that_comes_again_writes_nothing(indexing: Indexing, connection: Connection) -> None:
    uploaded = indexing.index()
    delete_document(connection, uploaded.document_id)
    before = dump(connection)
    for _ in range(5):
        delete_document(connection, uploaded.document_id, "ann")
    assert dump(connection) == before


def test_the_document_of_another_owner_does_not_exist(indexing: Indexing, connection: Connection) -> None:
    uploaded = indexing.index()
    for document_id, owner_id in ((uploaded.document_id, "bob"), (0, None), (0, "ann")):
        with pytest.raises(NotFound):
            delete_document(connection, document_id, owner_id)
    assert row(connection, "documents", uploaded.document_id).status == "INDEXED"
    delete_document(connection, uploaded.document_id, "ann")
    with pytest.raises(NotFound):
        delete_document(connection, uploaded.document_id, "bob")
