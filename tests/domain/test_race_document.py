"""Whole-document operations against those on one of its versions: one waits, none deadlocks."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import Connection, text

from domain.cancel import cancel_document
from domain.complete import complete_attempt
from domain.delete import delete_document
from domain.enqueue import Upload, enqueue_document
from domain.errors import AttemptConflict, AttemptNotCurrent, NotRetryable
from domain.fail import fail_attempt
from domain.retry import retry_version
from domain.statuses import VersionStatus
from tests.conftest import Connect, WaitUntilBlocked
from tests.domain.indexing import Indexing
from tests.domain.reports import BROKEN, report_of
from tests.domain.rows import column, count, embeddings, one, statuses

pytestmark = pytest.mark.race


def hold(connection: Connection, table: str, id_: int) -> None:
    """Lock a row as a transition does, so that those who need it stop there."""
    connection.execute(text(f"SELECT FROM {table} WHERE id = :id FOR NO KEY UPDATE"), {"id": id_})


def failed(committed: Indexing, stage: VersionStatus = VersionStatus.EMBEDDING) -> int:
    """A version that failed at the stage, with some content."""
    version = committed.upload().version_id
    claimed = committed.bring_to(stage)
    if stage == VersionStatus.EMBEDDING:
        committed.embed(claimed, most=1)
    fail_attempt(committed.connection, claimed.claim, BROKEN)
    committed.connection.commit()
    return version


def test_a_completion_and_a_retry_of_the_version_it_supersedes_do_not_deadlock(
    committed: Indexing, connect: Connect, background: ThreadPoolExecutor, wait_until_blocked: WaitUntilBlocked
) -> None:
    first = committed.index()
    second = committed.upload(content="2")
    claimed = committed.bring_to(VersionStatus.STORING)
    committed.connection.commit()
    blocker, completing, retrying = connect(), connect(), connect()
    hold(blocker, "documents", first.document_id)

    completed = background.submit(complete_attempt, completing, claimed.claim)
    wait_until_blocked(completing)
    retried = background.submit(retry_version, retrying, first.version_id)
    wait_until_blocked(retrying)
    blocker.rollback()

    assert completed.result(timeout=60).current
    completing.commit()
    with pytest.raises(NotRetryable):
        retried.result(timeout=60)
    assert statuses(completing, second.version_id) == ("INDEXED", "INDEXED", "INDEXED")
    assert embeddings(completing, first.version_id) == {"STALE": 2}


def test_a_deletion_and_a_retry_of_a_failed_version_do_not_deadlock(
    committed: Indexing, connect: Connect, background: ThreadPoolExecutor, wait_until_blocked: WaitUntilBlocked
) -> None:
    version_id = failed(committed)
    document_id = one(committed.connection, "SELECT id FROM documents")
    committed.connection.commit()
    blocker, deleting, retrying = connect(), connect(), connect()
    hold(blocker, "documents", document_id)

    deleted = background.submit(delete_document, deleting, document_id)
    wait_until_blocked(deleting)
    retried = background.submit(retry_version, retrying, version_id)
    wait_until_blocked(retrying)
    blocker.rollback()

    deleted.result(timeout=60)
    deleting.commit()
    with pytest.raises(NotRetryable, match="deleted"):
        retried.result(timeout=60)
    assert count(deleting, "chunks") == count(deleting, "embeddings") == count(deleting, "parsed_texts") == 0


def test_a_deletion_that_waits_for_a_retry_cancels_the_job_it_made(
    committed: Indexing, connect: Connect, background: ThreadPoolExecutor, wait_until_blocked: WaitUntilBlocked
) -> None:
    version_id = failed(committed)
    document_id = one(committed.connection, "SELECT id FROM documents")
    committed.connection.commit()
    retrying, deleting = connect(), connect()

    job_id = retry_version(retrying, version_id)
    deleted = background.submit(delete_document, deleting, document_id)
    wait_until_blocked(deleting)
    retrying.commit()

    deleted.result(timeout=60)
    deleting.commit()
    assert one(deleting, "SELECT status FROM embedding_jobs WHERE id = :id", id=job_id) == "CANCELLED"
    assert one(deleting, "SELECT status FROM documents") == "DELETED"


def test_of_two_retries_that_race_one_makes_a_job_and_the_other_says_it_is_waiting(
    committed: Indexing, connect: Connect, background: ThreadPoolExecutor, wait_until_blocked: WaitUntilBlocked
) -> None:
    version_id = failed(committed)
    first, second, watcher = connect(), connect(), connect()

    job_id = retry_version(first, version_id)
    retried = background.submit(retry_version, second, version_id)
    wait_until_blocked(second)
    first.commit()

    with pytest.raises(NotRetryable, match="already waiting or running"):
        retried.result(timeout=60)
    free = "SELECT id FROM embedding_jobs FOR NO KEY UPDATE SKIP LOCKED"
    assert column(watcher, free) == [], "the second locked the old job and the new one before it looked at the version"
    second.rollback()
    assert one(second, "SELECT max(id) FROM embedding_jobs") == job_id
    assert statuses(second, version_id) == ("PENDING", "EMBEDDING", "PENDING")


@pytest.mark.parametrize("retries_first", [True, False])
def test_of_a_retry_and_an_upload_the_second_sees_what_the_first_did(
    committed: Indexing,
    connect: Connect,
    background: ThreadPoolExecutor,
    wait_until_blocked: WaitUntilBlocked,
    retries_first: bool,
) -> None:
    version_id = failed(committed)
    upload = Upload("ann", "report.txt", "file:///2", "2" * 64)
    retrying, uploading = connect(), connect()

    if retries_first:
        retry_version(retrying, version_id)
        enqueued = background.submit(enqueue_document, uploading, upload, committed.model_id)
        wait_until_blocked(uploading)
        retrying.commit()
        assert enqueued.result(timeout=60).version_no == 2
        uploading.commit()
        assert statuses(uploading, version_id) == ("PENDING", "EMBEDDING", "PENDING")
    else:
        enqueue_document(uploading, upload, committed.model_id)
        retried = background.submit(retry_version, retrying, version_id)
        wait_until_blocked(retrying)
        uploading.commit()
        with pytest.raises(NotRetryable, match="newer"):
            retried.result(timeout=60)
        retrying.rollback()
        assert statuses(retrying, version_id) == ("PENDING", "FAILED", "FAILED")


@pytest.mark.parametrize("ending", ["complete", "fail", "record"])
def test_a_deletion_that_waits_for_a_report_leaves_no_content(
    committed: Indexing,
    connect: Connect,
    background: ThreadPoolExecutor,
    wait_until_blocked: WaitUntilBlocked,
    ending: str,
) -> None:
    uploaded = committed.upload()
    claimed = committed.bring_to(VersionStatus.EMBEDDING if ending == "record" else VersionStatus.STORING)
    committed.connection.commit()
    deleting, working = connect(), connect()

    report_of(ending, working, committed, claimed.version_id)(claimed.claim)
    deleted = background.submit(delete_document, deleting, uploaded.document_id)
    wait_until_blocked(deleting)
    working.commit()

    deleted.result(timeout=60)
    deleting.commit()
    assert statuses(deleting, uploaded.version_id)[0] == "DELETED"
    assert count(deleting, "chunks") == count(deleting, "embeddings") == count(deleting, "parsed_texts") == 0


@pytest.mark.parametrize("ending", ["complete", "fail", "record"])
def test_a_report_that_waits_for_a_deletion_writes_nothing(
    committed: Indexing,
    connect: Connect,
    background: ThreadPoolExecutor,
    wait_until_blocked: WaitUntilBlocked,
    ending: str,
) -> None:
    uploaded = committed.upload()
    claimed = committed.bring_to(VersionStatus.EMBEDDING if ending == "record" else VersionStatus.STORING)
    committed.connection.commit()
    deleting, working = connect(), connect()

    delete_document(deleting, uploaded.document_id)
    report = background.submit(report_of(ending, working, committed, claimed.version_id), claimed.claim)
    wait_until_blocked(working)
    deleting.commit()

    with pytest.raises((AttemptNotCurrent, AttemptConflict)):
        report.result(timeout=60)
    working.rollback()
    assert count(working, "embeddings") == 0


def test_an_upload_that_waits_for_a_deletion_makes_a_new_document_of_that_name(
    committed: Indexing, connect: Connect, background: ThreadPoolExecutor, wait_until_blocked: WaitUntilBlocked
) -> None:
    first = committed.index()
    committed.connection.commit()
    deleting, uploading = connect(), connect()

    delete_document(deleting, first.document_id)
    upload = Upload("ann", "report.txt", "file:///2", "2" * 64)
    enqueued = background.submit(enqueue_document, uploading, upload, committed.model_id)
    wait_until_blocked(uploading)
    deleting.commit()

    second = enqueued.result(timeout=60)
    uploading.commit()
    assert second.document_id != first.document_id
    assert second.version_no == 1


def test_a_deletion_that_waits_for_an_upload_cancels_what_it_made(
    committed: Indexing, connect: Connect, background: ThreadPoolExecutor, wait_until_blocked: WaitUntilBlocked
) -> None:
    first = committed.index()
    committed.connection.commit()
    deleting, uploading = connect(), connect()

    upload = Upload("ann", "report.txt", "file:///2", "2" * 64)
    second = enqueue_document(uploading, upload, committed.model_id)
    deleted = background.submit(delete_document, deleting, first.document_id)
    wait_until_blocked(deleting)
    uploading.commit()

    deleted.result(timeout=60)
    deleting.commit()
    assert statuses(deleting, second.version_id) == ("DELETED", "CANCELLED", "CANCELLED")


@pytest.mark.parametrize("act", [cancel_document, delete_document])
def test_an_upload_that_comes_while_a_whole_document_is_being_locked_is_stopped_too(
    committed: Indexing,
    connect: Connect,
    background: ThreadPoolExecutor,
    wait_until_blocked: WaitUntilBlocked,
    act: Callable[[Connection, int], object],
) -> None:
    first = committed.upload()
    committed.connection.commit()
    uploading, stopping = connect(), connect()

    second = enqueue_document(uploading, Upload("ann", "report.txt", "file:///2"), committed.model_id)
    stopped = background.submit(act, stopping, first.document_id)
    wait_until_blocked(stopping)
    uploading.commit()

    stopped.result(timeout=60)
    stopping.commit()
    for upload in (first, second):
        assert statuses(stopping, upload.version_id)[1:] == ("CANCELLED", "CANCELLED")
