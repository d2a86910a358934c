import pytest
from sqlalchemy import Connection, text

from domain.cancel import cancel_document
from domain.delete import delete_document
from domain.enqueue import Upload, enqueue_documents
from domain.errors import InvalidRequest
from domain.failures import FailureType
from domain.processing import (
    ProcessingFile,
    documents_by_ids,
    processing_count,
    processing_files,
    unfinished_count,
)
from domain.release import release_attempt
from domain.retry import retry_version
from domain.statuses import DocumentStatus, VersionStatus
from tests.conftest import Database
from tests.domain.indexing import Indexing
from tests.domain.statements import executed, plan


@pytest.fixture
def indexing(connection: Connection) -> Indexing:
    return Indexing(connection)


def only_file(indexing: Indexing) -> ProcessingFile:
    [file] = processing_files(indexing.connection, "ann")
    return file


def test_a_first_attempt_is_among_the_files_being_processed(indexing: Indexing) -> None:
    uploaded = indexing.upload(max_retry_count=2)
    file = only_file(indexing)
    assert file == ProcessingFile(
        file_id=uploaded.document_id,
        name="report.txt",
        current_stage=VersionStatus.UPLOADED,
        previous_stage=None,
        retry_count=0,
        max_retry=2,
        remaining_retry=2,
        created_at=file.created_at,
        last_retry_at=None,
        next_retry_at=None,
        errors=(),
    )


@pytest.mark.parametrize(
    ("stage", "previous"),
    [("PARSING", "UPLOADED"), ("CHUNKING", "PARSING"), ("EMBEDDING", "CHUNKING"), ("STORING", "EMBEDDING")],
)
def test_each_stage_names_the_one_it_is_entered_from(indexing: Indexing, stage: str, previous: str) -> None:
    indexing.upload()
    indexing.bring_to(VersionStatus(stage))
    assert (only_file(indexing).current_stage, only_file(indexing).previous_stage) == (stage, previous)


def test_a_file_to_be_retried_lists_the_error_of_every_failed_attempt(indexing: Indexing) -> None:
    indexing.retry_at_once()
    indexing.upload()
    release_attempt(indexing.connection, indexing.bring_to(VersionStatus.PARSING).claim)
    indexing.fail(indexing.bring_to(VersionStatus.PARSING), reason="SOURCE_CHANGED", message="첫 번째")
    waiting = only_file(indexing)
    assert (waiting.retry_count, waiting.max_retry, waiting.remaining_retry) == (1, 3, 2)
    assert waiting.next_retry_at is not None
    assert waiting.last_retry_at is None, "no retry has begun yet, and a released attempt was none"

    failed = indexing.fail(indexing.bring_to(VersionStatus.CHUNKING), FailureType.WORKER_INTERNAL_ERROR)
    file = only_file(indexing)
    assert file.next_retry_at == failed.next_retry_at
    assert file.last_retry_at is not None
    assert waiting.next_retry_at <= file.last_retry_at < failed.failed_at
    assert [
        (error.attempt, error.stage, error.failure_type, error.failure_reason, error.error_message)
        for error in file.errors
    ] == [
        (2, VersionStatus.PARSING, "STORAGE_UNAVAILABLE", "SOURCE_CHANGED", "첫 번째"),
        (3, VersionStatus.CHUNKING, "WORKER_INTERNAL_ERROR", None, "the store did not answer"),
    ]
    assert file.errors[-1].timestamp == failed.failed_at


def test_of_a_job_with_a_large_budget_the_latest_20_errors_are_listed(indexing: Indexing) -> None:
    indexing.retry_at_once()
    indexing.upload(max_retry_count=1000)
    for _ in range(22):
        indexing.fail(indexing.bring_to(VersionStatus.PARSING))
    assert [error.attempt for error in only_file(indexing).errors] == list(range(3, 23))


def test_the_files_are_the_owners_unfinished_ones_each_once_the_oldest_first(indexing: Indexing) -> None:
    indexing.index("finished")
    indexing.upload("failed")
    indexing.fail(indexing.bring_to(VersionStatus.PARSING), FailureType.DOCUMENT_CONTENT_INVALID)
    cancelled = indexing.upload("cancelled")
    cancel_document(indexing.connection, cancelled.document_id)
    indexing.upload("of bob", owner_id="bob")
    indexing.upload("twice", content="1")
    indexing.upload("last")
    indexing.upload("twice", content="2", max_retry_count=1)
    files = processing_files(indexing.connection, "ann")
    assert [(file.name, file.max_retry) for file in files] == [("twice", 1), ("last", 3)]
    assert processing_count(indexing.connection, "ann") == 2
    assert [file.name for file in processing_files(indexing.connection, "ann", limit=1)] == ["twice"]


def test_the_list_of_files_is_one_statement_that_reads_no_whole_table(database: Database, indexing: Indexing) -> None:
    # A fresh database: what autovacuum learns of one that is shared and rolled back would sway the planner.
    indexing.upload()
    # So that a scan of a whole table in the plan shows that there is no index to use.
    indexing.connection.execute(text("SET LOCAL enable_seqscan = off"))
    with executed(indexing.connection) as statements:
        processing_files(indexing.connection, "ann")
    assert len(statements) == 1
    found_by = plan(indexing.connection, statements[0])
    assert "jobs_live_of_owner" in found_by
    assert "Seq Scan" not in found_by


@pytest.mark.parametrize("limit", [0, 1001])
def test_a_list_has_1_to_1000_files(connection: Connection, limit: int) -> None:
    with pytest.raises(InvalidRequest):
        processing_files(connection, "ann", limit)


def test_twelve_thousand_unfinished_documents_are_counted_exactly(indexing: Indexing) -> None:
    uploads = [Upload("ann", f"{number}", f"file:///{number}") for number in range(12_000)]
    enqueued = enqueue_documents(indexing.connection, uploads, indexing.model_id)
    ids = [one.document_id for one in enqueued]
    assert processing_count(indexing.connection, "ann") == 12_000
    assert unfinished_count(indexing.connection, ids) == 12_000
    assert len(processing_files(indexing.connection, "ann")) == 100
    assert [progress.document_id for progress in documents_by_ids(indexing.connection, ids)] == sorted(ids)


def test_progress_says_whether_anything_is_left_to_do_and_how_far_the_newest_version_is(indexing: Indexing) -> None:
    indexed = indexing.index("indexed")
    failed = indexing.upload("failed")
    indexing.fail(indexing.bring_to(VersionStatus.PARSING), FailureType.DOCUMENT_CONTENT_INVALID, "PASSWORD_REQUIRED")
    embedding = indexing.upload("embedding")
    indexing.embed(indexing.bring_to(VersionStatus.EMBEDDING), most=1)
    waiting = indexing.upload("waiting")
    ids = [one.document_id for one in (waiting, embedding, failed, indexed)]
    found = documents_by_ids(indexing.connection, [*ids, 999_999_999])
    assert [
        (
            one.document_id,
            one.status,
            one.finished,
            one.version_status,
            (one.chunks_embedded, one.chunks_total),
            one.failure_reason,
        )
        for one in found
    ] == [
        (indexed.document_id, DocumentStatus.INDEXED, True, VersionStatus.INDEXED, (2, 2), None),
        (failed.document_id, DocumentStatus.FAILED, True, VersionStatus.FAILED, (None, None), "PASSWORD_REQUIRED"),
        (embedding.document_id, DocumentStatus.PENDING, False, VersionStatus.EMBEDDING, (1, 2), None),
        (waiting.document_id, DocumentStatus.PENDING, False, VersionStatus.UPLOADED, (None, None), None),
    ]
    assert unfinished_count(indexing.connection, ids) == 2


def test_progress_of_a_searchable_document_is_that_of_its_newest_version(indexing: Indexing) -> None:
    first = indexing.index(content="1")
    second = indexing.upload(content="2")
    indexing.fail(indexing.bring_to(VersionStatus.PARSING))
    [found] = documents_by_ids(indexing.connection, [first.document_id])
    assert (found.status, found.finished, found.version_id, found.retry_count) == (
        DocumentStatus.INDEXED,
        False,
        second.version_id,
        1,
    )
    assert found.next_retry_at is not None


def test_progress_after_a_manual_retry_is_that_of_the_new_job(indexing: Indexing) -> None:
    uploaded = indexing.upload()
    indexing.fail(indexing.bring_to(VersionStatus.PARSING), FailureType.DOCUMENT_CONTENT_INVALID)
    retry_version(indexing.connection, uploaded.version_id)
    [found] = documents_by_ids(indexing.connection, [uploaded.document_id])
    assert (found.finished, found.failure_type) == (False, None)


def test_a_deleted_document_has_nothing_left_to_do(indexing: Indexing) -> None:
    uploaded = indexing.upload()
    delete_document(indexing.connection, uploaded.document_id)
    [found] = documents_by_ids(indexing.connection, [uploaded.document_id])
    assert (found.status, found.finished) == (DocumentStatus.DELETED, True)
    assert processing_files(indexing.connection, "ann") == []


def test_no_ids_are_no_documents(connection: Connection) -> None:
    assert documents_by_ids(connection, []) == []
    assert unfinished_count(connection, []) == 0
