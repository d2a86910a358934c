"""Request ids: an upload that comes again gets the first result."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import Connection

from domain.delete import delete_document
from domain.enqueue import Upload, enqueue_document, enqueue_documents
from domain.errors import RequestConflict
from domain.failures import FailureType
from domain.retry import retry_version
from domain.statuses import VersionStatus
from tests.conftest import Connect, WaitUntilBlocked
from tests.domain.indexing import Indexing
from tests.domain.rows import column, count

OLD, NEW = "a" * 64, "b" * 64


def upload(
    request_id: str | None = "r1",
    name: str = "a.txt",
    sha256: str | None = OLD,
    owner_id: str = "ann",
    uri: str = "file:///a",
    force: bool = False,
) -> Upload:
    return Upload(owner_id, name, uri, sha256, request_id, force=force)


def test_a_repeated_request_returns_its_first_result_and_writes_nothing(
    indexing: Indexing, connection: Connection
) -> None:
    first = enqueue_document(connection, upload(), indexing.model_id)
    for force in (False, True):
        assert enqueue_document(connection, upload(force=force), indexing.model_id) == first
    assert count(connection, "document_versions") == 1


def test_a_repeated_request_returns_its_first_result_whatever_became_of_it(
    indexing: Indexing, connection: Connection
) -> None:
    first = enqueue_document(connection, upload(), indexing.model_id)
    indexing.fail(indexing.bring_to(VersionStatus.PARSING), FailureType.DOCUMENT_CONTENT_INVALID)
    assert enqueue_document(connection, upload(), indexing.model_id) == first
    retry_version(connection, first.version_id)
    assert enqueue_document(connection, upload(), indexing.model_id) == first, "the job is still the first one"
    enqueue_document(connection, upload("r2", sha256=NEW), indexing.model_id)
    assert enqueue_document(connection, upload(), indexing.model_id) == first
    indexing.check_commit()


def test_a_repeated_request_of_a_deleted_document_makes_no_document_without_a_job(
    indexing: Indexing, connection: Connection
) -> None:
    first = enqueue_document(connection, upload(), indexing.model_id)
    delete_document(connection, first.document_id)
    assert enqueue_document(connection, upload(), indexing.model_id) == first
    indexing.check_commit()
    assert count(connection, "documents") == 1


def test_a_request_id_belongs_to_its_owner(indexing: Indexing, connection: Connection) -> None:
    first = enqueue_document(connection, upload(), indexing.model_id)
    second = enqueue_document(connection, upload(owner_id="bob"), indexing.model_id)
    assert first.document_id != second.document_id


@pytest.mark.parametrize(
    "other",
    [
        upload(sha256=NEW),
        upload(name="b.txt"),
        upload(sha256=None, uri="file:///b"),
    ],
    ids=["other bytes", "another name", "another place"],
)
def test_a_request_id_with_other_content_is_a_conflict_and_writes_nothing(
    indexing: Indexing, connection: Connection, other: Upload
) -> None:
    enqueue_document(connection, upload(), indexing.model_id)
    with pytest.raises(RequestConflict, match="r1"):
        enqueue_document(connection, other, indexing.model_id)
    assert count(connection, "documents") == count(connection, "document_versions") == 1
    indexing.check_commit()


def test_a_request_is_the_same_from_another_place_if_its_bytes_are(indexing: Indexing, connection: Connection) -> None:
    first = enqueue_document(connection, upload(), indexing.model_id)
    assert enqueue_document(connection, upload(uri="s3://bucket/a"), indexing.model_id) == first


def test_a_request_without_hashes_is_the_same_if_its_place_is(indexing: Indexing, connection: Connection) -> None:
    first = enqueue_document(connection, upload(sha256=None), indexing.model_id)
    indexing.bring_to(VersionStatus.CHUNKING)  # learns the hash
    assert enqueue_document(connection, upload(sha256=None), indexing.model_id) == first


def test_a_request_that_comes_twice_in_one_call_is_one_version(indexing: Indexing, connection: Connection) -> None:
    first, second, third = enqueue_documents(
        connection, [upload(), upload("r2", "b.txt"), upload(force=True)], indexing.model_id
    )
    assert first == third
    assert first != second
    assert count(connection, "document_versions") == 2


def test_a_request_id_that_comes_twice_in_one_call_for_two_documents_is_a_conflict(
    indexing: Indexing, connection: Connection
) -> None:
    with pytest.raises(RequestConflict):
        enqueue_documents(connection, [upload(), upload(name="b.txt")], indexing.model_id)


def test_a_call_that_mixes_repeats_and_new_uploads_accepts_the_new_ones(
    indexing: Indexing, connection: Connection
) -> None:
    first = enqueue_document(connection, upload(), indexing.model_id)
    new, repeat = enqueue_documents(connection, [upload("r2", "b.txt"), upload()], indexing.model_id)
    assert repeat == first
    assert new.document_id != first.document_id
    indexing.check_commit()


@pytest.mark.race
def test_of_two_equal_requests_that_race_both_get_the_same_result(
    committed: Indexing, connect: Connect, background: ThreadPoolExecutor, wait_until_blocked: WaitUntilBlocked
) -> None:
    first, second = connect(), connect()
    one = enqueue_document(first, upload(), committed.model_id)
    other = background.submit(enqueue_document, second, upload(), committed.model_id)
    wait_until_blocked(second)
    first.commit()
    assert other.result(timeout=60) == one
    second.commit()
    assert count(second, "document_versions") == 1


@pytest.mark.race
def test_of_two_requests_for_two_documents_that_race_the_second_is_a_conflict(
    committed: Indexing, connect: Connect, background: ThreadPoolExecutor, wait_until_blocked: WaitUntilBlocked
) -> None:
    first, second = connect(), connect()
    enqueue_document(first, upload(), committed.model_id)
    other = background.submit(enqueue_document, second, upload(name="b.txt"), committed.model_id)
    wait_until_blocked(second)
    first.commit()
    with pytest.raises(RequestConflict):
        other.result(timeout=60)
    second.rollback()
    assert column(second, "SELECT name FROM documents") == ["a.txt"]


@pytest.mark.race
def test_a_request_is_accepted_when_the_one_it_waited_for_is_rolled_back(
    committed: Indexing, connect: Connect, background: ThreadPoolExecutor, wait_until_blocked: WaitUntilBlocked
) -> None:
    first, second = connect(), connect()
    enqueue_document(first, upload(), committed.model_id)
    other = background.submit(enqueue_document, second, upload(name="b.txt"), committed.model_id)
    wait_until_blocked(second)
    first.rollback()
    assert other.result(timeout=60).version_no == 1
    second.commit()


@pytest.mark.race
def test_the_same_request_from_twenty_callers_at_once_is_one_version(
    committed: Indexing, connect: Connect, background: ThreadPoolExecutor
) -> None:
    connections = [connect() for _ in range(20)]

    def send(connection: Connection) -> object:
        result = enqueue_document(connection, upload(), committed.model_id)
        connection.commit()
        return result

    assert len(set(background.map(send, connections))) == 1
    assert count(committed.connection, "document_versions") == count(committed.connection, "documents") == 1


@pytest.mark.race
def test_two_calls_with_crossed_request_ids_do_not_deadlock(
    committed: Indexing, connect: Connect, background: ThreadPoolExecutor
) -> None:
    """The request ids of one call are names of the other's documents, in the opposite order."""
    connections = [connect() for _ in range(2)]
    forwards = [upload(f"r{number:03}", f"a{number:03}") for number in range(800)]
    backwards = [upload(f"r{799 - number:03}", f"b{number:03}") for number in range(800)]

    def send(connection: Connection, uploads: list[Upload]) -> str:
        try:
            enqueue_documents(connection, uploads, committed.model_id)
        except RequestConflict:
            connection.rollback()
            return "conflict"
        connection.commit()
        return "accepted"

    assert sorted(background.map(send, connections, [forwards, backwards])) == ["accepted", "conflict"]
