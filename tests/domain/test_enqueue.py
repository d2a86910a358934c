"""Accepting documents, one and thousands at once."""

import pytest
from sqlalchemy import Connection, text
from sqlalchemy.exc import IntegrityError

from domain.cancel import cancel_document
from domain.claim import claim_jobs
from domain.delete import delete_document
from domain.enqueue import (
    Enqueued,
    Upload,
    earlier_requests,
    enqueue_document,
    enqueue_documents,
    searched_in_the_end,
)
from domain.errors import NotFound
from domain.failures import FailureType
from domain.statuses import Task, VersionStatus
from tests.conftest import Connect
from tests.domain.indexing import Indexing
from tests.domain.rows import column, count, events, one, row, statuses
from tests.domain.statements import executed


def upload(name: str = "a.txt", owner_id: str = "ann", **more: object) -> Upload:
    return Upload(owner_id, name, f"file:///{name}", **more)  # type: ignore[arg-type]


def test_an_upload_makes_a_document_a_version_and_a_job_that_is_due_now(
    indexing: Indexing, connection: Connection
) -> None:
    enqueued = enqueue_document(
        connection,
        upload(content_sha256="a" * 64, request_id="r", max_retry_count=7, media_type="text/plain", size_bytes=5),
        indexing.model_id,
    )
    document = row(connection, "documents", enqueued.document_id)
    version = row(connection, "document_versions", enqueued.version_id)
    job = row(connection, "embedding_jobs", enqueued.job_id or 0)
    assert not enqueued.unchanged
    assert (document.owner_id, document.name, document.status, document.current_version_id) == (
        "ann",
        "a.txt",
        "PENDING",
        None,
    )
    assert (version.document_id, version.owner_id, version.version_no) == (document.id, "ann", 1)
    assert (version.status, version.storage_uri, version.content_sha256) == ("UPLOADED", "file:///a.txt", "a" * 64)
    assert (version.media_type, version.size_bytes, version.request_id) == ("text/plain", 5, "r")
    assert version.model_id == indexing.model_id
    assert (job.version_id, job.document_id, job.owner_id) == (version.id, document.id, "ann")
    assert (job.status, job.task, job.attempt_no) == ("PENDING", "parse", 0)
    assert (job.retry_count, job.max_retry_count) == (0, 7)
    assert (job.next_retry_at, job.due_at) == (None, job.created_at)
    assert events(connection, document.id) == ["DOCUMENT_PENDING", "FILE_UPLOADED"]
    indexing.check_commit()


def test_the_same_name_again_is_a_new_version_of_the_same_document(indexing: Indexing, connection: Connection) -> None:
    first = enqueue_document(connection, upload(), indexing.model_id)
    second = enqueue_document(connection, upload(), indexing.model_id)
    assert (second.document_id, second.version_no) == (first.document_id, 2)
    assert second.job_id != first.job_id
    indexing.check_commit()


def test_a_name_belongs_to_its_owner(indexing: Indexing, connection: Connection) -> None:
    first = enqueue_document(connection, upload(owner_id="ann"), indexing.model_id)
    second = enqueue_document(connection, upload(owner_id="bob"), indexing.model_id)
    assert first.document_id != second.document_id
    assert (first.version_no, second.version_no) == (1, 1)


@pytest.mark.parametrize("name", ["문서 (최종).hwp", "a/../b", "https://host/a?b=c#d", "%s {} \\ ' \" ;--", "é" * 512])
def test_a_name_is_stored_as_it_is(indexing: Indexing, connection: Connection, name: str) -> None:
    enqueued = enqueue_document(connection, upload(name), indexing.model_id)
    assert row(connection, "documents", enqueued.document_id).name == name


@pytest.mark.parametrize("ending", ["fail", "cancel"])
def test_a_new_version_of_a_stopped_document_makes_it_pending_again(
    indexing: Indexing, connection: Connection, ending: str
) -> None:
    first = indexing.upload()
    if ending == "fail":
        indexing.fail(indexing.bring_to(VersionStatus.PARSING), FailureType.DOCUMENT_CONTENT_INVALID)
    else:
        cancel_document(connection, first.document_id)
    stopped = row(connection, "documents", first.document_id).status
    second = indexing.upload(content="2")
    assert stopped in ("FAILED", "CANCELLED")
    assert statuses(connection, second.version_id) == ("PENDING", "UPLOADED", "PENDING")
    assert events(connection, first.document_id)[-2:] == ["FILE_UPLOADED", "DOCUMENT_PENDING"]
    indexing.check_commit()


def test_a_new_version_of_a_searchable_document_leaves_it_searchable(
    indexing: Indexing, connection: Connection
) -> None:
    first = indexing.index()
    indexing.upload(content="2")
    document = row(connection, "documents", first.document_id)
    assert (document.status, document.current_version_id) == ("INDEXED", first.version_id)
    indexing.check_commit()


def test_the_results_of_many_uploads_are_in_their_order(indexing: Indexing, connection: Connection) -> None:
    names = ["c", "a", "b", "a", "c", "d", "a"]
    results = enqueue_documents(connection, [upload(name) for name in names], indexing.model_id)
    assert [row(connection, "documents", result.document_id).name for result in results] == names
    assert [result.version_no for result in results] == [1, 1, 1, 2, 2, 1, 3]
    assert len({result.version_id for result in results}) == len({result.job_id for result in results}) == 7
    indexing.check_commit()


def test_the_first_upload_of_many_is_claimed_first(indexing: Indexing, connection: Connection) -> None:
    uploads = [upload(f"{9 - number}", request_id=f"r{number * 7 % 10}") for number in range(10)]
    results = enqueue_documents(connection, uploads, indexing.model_id)
    claimed = claim_jobs(connection, indexing.worker_id, 10, list(Task))
    assert [job.version_id for job in claimed] == [result.version_id for result in results]


def test_no_uploads_are_no_work(indexing: Indexing, connection: Connection) -> None:
    assert enqueue_documents(connection, [], indexing.model_id) == []
    assert count(connection, "documents") == 0


def test_thousands_are_accepted_in_one_call(indexing: Indexing, connection: Connection) -> None:
    uploads = [
        upload(f"{number}.txt", f"owner {number % 7}", content_sha256=f"{number:064x}", request_id=f"r{number}")
        for number in range(3000)
    ]
    with executed(connection) as statements:
        results = enqueue_documents(connection, uploads, indexing.model_id)
    assert len(statements) <= 12, "no statement for each of them"
    indexing.check_commit()
    assert len({result.job_id for result in results}) == 3000
    assert enqueue_documents(connection, uploads, indexing.model_id) == results
    assert count(connection, "document_versions") == 3000


def test_more_uploads_than_a_statement_has_parameters_are_looked_up_in_one_call(
    indexing: Indexing, connection: Connection
) -> None:
    many = [upload(f"{number}", request_id=f"r{number}") for number in range(40_000)]
    assert earlier_requests(connection, many) == {}
    assert searched_in_the_end(connection, list(range(70_000))) == {}


def test_an_upload_joins_the_transaction_of_its_caller(committed: Indexing, connect: Connect) -> None:
    owner, caller, other = connect(owner=True), connect(), connect()
    owner.execute(text("CREATE TABLE orders (id bigint); GRANT SELECT, INSERT ON orders TO PUBLIC"))
    owner.commit()

    caller.execute(text("INSERT INTO orders VALUES (1)"))
    enqueue_document(caller, upload(), committed.model_id)
    assert count(other, "documents") == 0
    caller.rollback()
    assert count(caller, "orders") == count(caller, "documents") == count(caller, "indexing_events") == 0

    caller.execute(text("INSERT INTO orders VALUES (1)"))
    enqueued = enqueue_document(caller, upload(), committed.model_id)
    caller.commit()
    other.rollback()
    assert (count(caller, "orders"), count(other, "documents")) == (1, 1)
    assert column(other, "SELECT id FROM embedding_jobs") == [enqueued.job_id]


def test_a_model_that_nobody_registered_is_refused(indexing: Indexing, connection: Connection) -> None:
    with pytest.raises(NotFound, match="model"):
        enqueue_document(connection, upload(), indexing.model_id + 1)
    assert count(connection, "documents") == 0


def test_the_name_of_a_deleted_document_is_free_again(indexing: Indexing, connection: Connection) -> None:
    first = indexing.index()
    delete_document(connection, first.document_id)
    second = indexing.upload()
    assert isinstance(second, Enqueued)
    assert second.document_id != first.document_id
    assert second.version_no == 1
    assert not second.unchanged
    indexing.check_commit()


def test_a_version_without_a_job_cannot_be_committed(indexing: Indexing, connection: Connection) -> None:
    """What the transaction of an upload guards against: a document that waits for nothing."""
    connection.execute(text("INSERT INTO documents (owner_id, name) VALUES ('ann', 'x')"))
    with pytest.raises(IntegrityError, match="no job to index it"):
        indexing.check_commit()
    connection.rollback()
    assert one(connection, "SELECT 1") == 1
