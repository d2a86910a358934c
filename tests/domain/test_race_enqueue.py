"""Uploads that race: one name is one document, the same bytes are one version, and nobody deadlocks."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import Connection

from domain.enqueue import Enqueued, Upload, enqueue_document, enqueue_documents
from tests.conftest import Connect, WaitUntilBlocked
from tests.domain.indexing import Indexing
from tests.domain.rows import column, count

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
    two = other.result(timeout=20)
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
    assert not other.result(timeout=20).unchanged
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
