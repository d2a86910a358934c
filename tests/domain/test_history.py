from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Connection, text

from domain.delete import delete_document
from domain.errors import InvalidRequest, NotFound
from domain.failures import FailureType
from domain.history import attempts_of, failures, history
from domain.release import release_attempt
from domain.retry import retry_version
from domain.statuses import AttemptStatus, DocumentStatus, Outcome, VersionStatus
from tests.domain.indexing import Indexing
from tests.domain.statements import executed, plan

Question = Callable[..., list[Any]]


@pytest.fixture
def indexing(connection: Connection) -> Indexing:
    return Indexing(connection)


def test_the_history_tells_every_change_in_order(indexing: Indexing) -> None:
    indexing.retry_at_once()
    uploaded = indexing.upload()
    indexing.fail(indexing.bring_to(VersionStatus.CHUNKING))
    indexing.bring_to(VersionStatus.INDEXED)
    found = history(indexing.connection, uploaded.document_id)
    assert [(event.type, event.stage, event.version_no) for event in found] == [
        ("DOCUMENT_PENDING", None, None),
        ("FILE_UPLOADED", None, 1),
        ("CLAIMED", "PARSING", 1),
        ("PARSING_COMPLETED", "PARSING", 1),
        ("CHUNKING_FAILED", "CHUNKING", 1),
        ("RETRY", "CHUNKING", 1),
        ("CLAIMED", "CHUNKING", 1),
        ("CHUNKING_COMPLETED", "CHUNKING", 1),
        ("EMBEDDING_COMPLETED", "EMBEDDING", 1),
        ("INDEXED", "STORING", 1),
        ("CURRENT_CHANGED", None, 1),
        ("DOCUMENT_INDEXED", None, 1),
    ]
    assert found[5].detail["re_entry"] == "PARSING_COMPLETED"
    assert [event.created_at for event in found] == sorted(event.created_at for event in found)


def test_a_long_history_is_read_page_by_page(indexing: Indexing) -> None:
    uploaded = indexing.index()
    whole = history(indexing.connection, uploaded.document_id)
    first = history(indexing.connection, uploaded.document_id, limit=4)
    rest = history(indexing.connection, uploaded.document_id, after=first[-1].id)
    assert (first + rest, len(first)) == (whole, 4)


def test_the_attempts_tell_who_tried_and_how_each_ended(indexing: Indexing) -> None:
    indexing.retry_at_once()
    uploaded = indexing.upload()
    release_attempt(indexing.connection, indexing.claim().claim)
    failed = indexing.fail(indexing.bring_to(VersionStatus.PARSING), reason="SOURCE_CHANGED")
    indexing.bring_to(VersionStatus.INDEXED)
    indexing.upload(content="2")
    indexing.bring_to(VersionStatus.EMBEDDING)
    found = attempts_of(indexing.connection, uploaded.document_id)
    assert [
        (attempt.version_no, attempt.attempt_no, attempt.status, attempt.claimed_by, attempt.run_by)
        for attempt in found
    ] == [
        (1, 1, AttemptStatus.RELEASED, "worker-1", None),
        (1, 2, AttemptStatus.FAILED, "worker-1", "worker-1"),
        (1, 3, AttemptStatus.INDEXED, "worker-1", "worker-1"),
        (2, 1, AttemptStatus.STARTED, "worker-1", "worker-1"),
    ]
    assert (found[1].failed_stage, found[1].failure_reason, found[1].outcome, found[1].next_retry_at) == (
        VersionStatus.PARSING,
        "SOURCE_CHANGED",
        Outcome.RETRY,
        failed.next_retry_at,
    )
    assert attempts_of(indexing.connection, uploaded.document_id, limit=2) == found[2:]


@pytest.mark.parametrize("question", [history, attempts_of])
def test_what_is_not_the_owners_has_no_history(indexing: Indexing, question: Question) -> None:
    uploaded = indexing.index()
    assert question(indexing.connection, uploaded.document_id, "ann")
    for document_id, owner_id in ((uploaded.document_id, "bob"), (999_999_999, None), (999_999_999, "ann")):
        with pytest.raises(NotFound):
            question(indexing.connection, document_id, owner_id)
    with pytest.raises(InvalidRequest):
        question(indexing.connection, uploaded.document_id, limit=0)


@pytest.mark.parametrize("question", [history, attempts_of])
def test_the_history_of_a_deleted_document_stays_for_the_operator(indexing: Indexing, question: Question) -> None:
    uploaded = indexing.index()
    delete_document(indexing.connection, uploaded.document_id)
    assert question(indexing.connection, uploaded.document_id)
    with pytest.raises(NotFound):
        question(indexing.connection, uploaded.document_id, "ann")


def test_a_final_failure_shows_every_attempt_with_stage_type_message_and_time(indexing: Indexing) -> None:
    indexing.retry_at_once()
    uploaded = indexing.upload()
    failed = [
        indexing.fail(indexing.bring_to(VersionStatus(stage)), message=f"실패 {stage}")
        for stage in ("PARSING", "PARSING", "CHUNKING", "EMBEDDING")
    ]
    [found] = failures(indexing.connection, "ann")
    assert (found.document_id, found.name, found.version_no, found.stage, found.retry_count) == (
        uploaded.document_id,
        "report.txt",
        1,
        VersionStatus.EMBEDDING,
        3,
    )
    assert (found.document_status, found.failure_type) == (DocumentStatus.FAILED, "STORAGE_UNAVAILABLE")
    assert [
        (error.attempt, error.stage, error.failure_type, error.error_message, error.timestamp) for error in found.errors
    ] == [
        (attempt.attempt_no, attempt.failed_stage, attempt.failure_type, attempt.error_message, attempt.failed_at)
        for attempt in failed
    ]
    assert found.final_failed_at == failed[-1].failed_at


def test_failures_are_the_owners_the_newest_first_page_by_page(indexing: Indexing) -> None:
    for owner_id, name in (("ann", "1"), ("bob", "2"), ("ann", "3"), ("ann", "4")):
        indexing.upload(name, owner_id)
        indexing.fail(indexing.bring_to(VersionStatus.PARSING), FailureType.DOCUMENT_CONTENT_INVALID)
    first = failures(indexing.connection, "ann", limit=2)
    second = failures(indexing.connection, "ann", limit=2, after=first[-1].id)
    assert [found.name for found in first + second] == ["4", "3", "1"]
    assert [found.name for found in failures(indexing.connection)] == ["4", "3", "2", "1"]


def test_a_failure_stays_after_a_manual_retry(indexing: Indexing) -> None:
    uploaded = indexing.upload()
    indexing.fail(indexing.bring_to(VersionStatus.PARSING), FailureType.DOCUMENT_CONTENT_INVALID)
    retry_version(indexing.connection, uploaded.version_id)
    indexing.bring_to(VersionStatus.INDEXED)
    [found] = failures(indexing.connection, "ann")
    assert found.document_status == DocumentStatus.INDEXED


def test_history_attempts_and_failures_read_no_whole_table(indexing: Indexing) -> None:
    uploaded = indexing.index()
    # So that a scan of a whole table in the plan shows that there is no index to use.
    indexing.connection.execute(text("SET LOCAL enable_seqscan = off"))
    with executed(indexing.connection) as statements:
        history(indexing.connection, uploaded.document_id)
        attempts_of(indexing.connection, uploaded.document_id)
        failures(indexing.connection, "ann")
        failures(indexing.connection)
    for statement in statements:
        assert "Seq Scan" not in plan(indexing.connection, statement)
