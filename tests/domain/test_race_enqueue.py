"""Uploads that race: one name is one document, the same bytes are one version, and nobody deadlocks."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import Connection, text

from domain.delete import delete_document
from domain.enqueue import Enqueued, Upload, enqueue_document, enqueue_documents
from domain.errors import DocumentBusy
from tests.conftest import Connect, WaitUntil, WaitUntilBlocked
from tests.domain.indexing import Indexing
from tests.domain.rows import column, count, one

pytestmark = pytest.mark.race

SHA256 = "a" * 64


def test_two_uploads_of_a_new_name_make_one_document_with_two_versions(
    committed: Indexing, connect: Connect, background: ThreadPoolExecutor, wait_until_blocked: WaitUntilBlocked
) -> None:
    first, second = connect(), connect()
    one = enqueue_document(first, Upload("ann", "a", "file:///1", "1" * 64), committed.model_id)
    other = background.submit(enqueue_document, second, Upload("ann", "a", "file:///2", "2" * 64), committed.model_id)
    wait_until_blocked(second)
    first.commit()
    two = other.result(timeout=60)
    second.commit()
    assert (one.document_id, one.version_no) == (two.document_id, 1)
    assert two.version_no == 2
    assert count(second, "documents") == 1


def test_an_upload_makes_the_document_when_the_one_it_waited_for_is_rolled_back(
    committed: Indexing, connect: Connect, background: ThreadPoolExecutor, wait_until_blocked: WaitUntilBlocked
) -> None:
    first, second = connect(), connect()
    enqueue_document(first, Upload("ann", "a", "file:///1", SHA256), committed.model_id)
    other = background.submit(enqueue_document, second, Upload("ann", "a", "file:///1", SHA256), committed.model_id)
    wait_until_blocked(second)
    first.rollback()
    assert not other.result(timeout=60).unchanged
    second.commit()
    assert count(second, "document_versions") == 1


def test_ten_parallel_uploads_of_the_same_bytes_are_one_version_and_nine_are_unchanged(
    committed: Indexing, connect: Connect, background: ThreadPoolExecutor
) -> None:
    connections = [connect() for _ in range(10)]

    def send(connection: Connection) -> Enqueued:
        result = enqueue_document(connection, Upload("ann", "a", "file:///1", SHA256), committed.model_id)
        connection.commit()
        return result

    results = list(background.map(send, connections))
    assert sorted(result.unchanged for result in results) == [False] + [True] * 9
    assert len({result.version_id for result in results}) == 1
    assert count(committed.connection, "document_versions") == count(committed.connection, "embedding_jobs") == 1


def test_bulk_uploads_of_the_same_names_in_opposite_orders_do_not_deadlock(
    committed: Indexing, connect: Connect, background: ThreadPoolExecutor
) -> None:
    connections = [connect() for _ in range(4)]
    names = [f"{number:03}" for number in range(100)]

    def send(caller: int, connection: Connection) -> list[Enqueued]:
        turned = names[caller * 25 :] + names[: caller * 25]
        results = []
        for number in range(5):
            turned.reverse()
            uploads = [Upload("ann", name, "file:///x", request_id=f"{caller}.{number}.{name}") for name in turned]
            results += enqueue_documents(connection, uploads, committed.model_id)
            connection.commit()
        return results

    results = [result for some in background.map(send, range(4), connections) for result in some]
    assert len({result.version_id for result in results}) == 2000
    numbers = "SELECT array_agg(version_no ORDER BY version_no) FROM document_versions GROUP BY document_id"
    assert column(committed.connection, numbers) == [list(range(1, 21))] * 100


def test_a_bulk_upload_that_has_to_make_a_deleted_document_anew_gives_its_locks_back_first(
    committed: Indexing, connect: Connect, background: ThreadPoolExecutor, wait_until: WaitUntil
) -> None:
    """Otherwise it would wait for another upload's new document while that one waits for a document of its own."""
    a, b = (committed.upload(name).document_id for name in ("a", "b"))
    committed.connection.commit()
    deleting, holding, first, second, watcher = (connect() for _ in range(5))
    lock = text("SELECT FROM documents WHERE id = :id FOR NO KEY UPDATE")
    pids = {c: one(c, "SELECT pg_backend_pid()") for c in (deleting, holding, first, second)}

    def blocked(waiting: Connection, by: Connection) -> bool:
        found: list[int] = one(watcher, "SELECT pg_blocking_pids(:pid)", pid=pids[waiting])
        return pids[by] in found

    def send(connection: Connection) -> list[Enqueued]:
        uploads = [Upload("ann", name, "file:///x") for name in ("a", "b")]
        results = enqueue_documents(connection, uploads, committed.model_id)
        connection.commit()
        return results

    deleting.execute(lock, {"id": a})
    holding.execute(lock, {"id": b})
    one_of = background.submit(send, first)
    wait_until(lambda: blocked(first, deleting))  # it has seen that both exist
    delete_document(deleting, a)
    other = background.submit(send, second)
    wait_until(lambda: blocked(second, deleting))  # it will make the document anew
    deleting.commit()
    wait_until(lambda: blocked(first, holding))
    wait_until(lambda: blocked(second, holding) or blocked(second, first))
    holding.rollback()

    results = one_of.result(timeout=60) + other.result(timeout=60)
    assert sorted(result.version_no for result in results) == [1, 2, 2, 3]
    assert len({result.document_id for result in results} - {a}) == 2


def test_an_upload_gives_up_when_its_document_is_deleted_again_and_again(
    committed: Indexing,
    connect: Connect,
    background: ThreadPoolExecutor,
    wait_until_blocked: WaitUntilBlocked,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("domain.enqueue.TRIES", 1)
    document_id = committed.upload("a").document_id
    committed.connection.commit()
    deleting, uploading = connect(), connect()
    deleting.execute(text("SELECT FROM documents FOR NO KEY UPDATE"))
    result = background.submit(enqueue_document, uploading, Upload("ann", "a", "file:///x"), committed.model_id)
    wait_until_blocked(uploading)
    delete_document(deleting, document_id)
    deleting.commit()
    with pytest.raises(DocumentBusy, match="try again"):
        result.result(timeout=60)
    uploading.rollback()
    assert count(uploading, "documents") == 1


def test_a_request_whose_document_was_made_and_deleted_while_it_waited_is_answered_the_next_time(
    committed: Indexing, connect: Connect, background: ThreadPoolExecutor, wait_until_blocked: WaitUntilBlocked
) -> None:
    upload = Upload("ann", "a", "file:///x", SHA256, "r1")
    first, second = connect(), connect()
    made = enqueue_document(first, upload, committed.model_id)
    result = background.submit(enqueue_document, second, upload, committed.model_id)
    wait_until_blocked(second)
    delete_document(first, made.document_id)
    first.commit()
    with pytest.raises(DocumentBusy):
        result.result(timeout=60)
    second.rollback()
    assert enqueue_document(second, upload, committed.model_id) == made
    second.commit()
