"""A fault before any statement of a transition leaves nothing behind, and the repeated call then succeeds."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Connection, event

from domain.begin import begin_stage, go_on
from domain.cancel import cancel_document
from domain.claim import claim_and_begin, claim_jobs
from domain.complete import complete_attempt
from domain.delete import delete_document
from domain.enqueue import Upload, enqueue_documents
from domain.fail import fail_attempt
from domain.failures import Failure, FailureType
from domain.lease import extend_leases
from domain.record import record_chunks, record_embeddings, record_parsed
from domain.release import release_attempt, release_unbegun
from domain.retry import retry_version
from domain.statuses import Task, VersionStatus
from tests.domain.conftest import Force
from tests.domain.indexing import LEASE, Indexing, Passage, Text
from tests.domain.rows import column, dump

TIMED_OUT = Failure(FailureType.STORAGE_UNAVAILABLE, "no answer")
CORRUPT = Failure(FailureType.DOCUMENT_CONTENT_INVALID, "no page can be read", "CORRUPT")
EXPIRE = "UPDATE embedding_jobs SET lease_expires_at = clock_timestamp() - interval '1 s' WHERE status = 'PROCESSING'"

Call = Callable[[Connection], object]


class InjectedFault(Exception):
    """Stands for a killed process or a lost connection."""


@contextmanager
def fault_before(connection: Connection, number: int) -> Iterator[list[str]]:
    """Raise instead of executing the statement of that number, from 1; the statements are noted."""
    statements: list[str] = []

    def strike(_: Any, __: Any, statement: str, *___: Any) -> None:
        statements.append(statement)
        if len(statements) == number:
            raise InjectedFault

    event.listen(connection, "before_cursor_execute", strike)
    try:
        yield statements
    finally:
        event.remove(connection, "before_cursor_execute", strike)


def fail_to_retry(indexing: Indexing, _: Force) -> Call:
    indexing.upload()
    claim = indexing.bring_to(VersionStatus.EMBEDDING).claim
    return lambda connection: fail_attempt(connection, claim, TIMED_OUT)


def fail_for_good(indexing: Indexing, _: Force) -> Call:
    """Of the first version: the document fails too, and its vectors go stale."""
    indexing.upload()
    claimed = indexing.bring_to(VersionStatus.EMBEDDING)
    indexing.embed(claimed, most=1)
    return lambda connection: fail_attempt(connection, claimed.claim, CORRUPT)


def fail_behind_a_searchable_version(indexing: Indexing, _: Force) -> Call:
    indexing.index()
    indexing.upload(content="2")
    claim = indexing.bring_to(VersionStatus.STORING).claim
    return lambda connection: fail_attempt(connection, claim, CORRUPT)


def complete_the_first(indexing: Indexing, _: Force) -> Call:
    indexing.upload()
    claim = indexing.bring_to(VersionStatus.STORING).claim
    return lambda connection: complete_attempt(connection, claim)


def complete_and_supersede(indexing: Indexing, _: Force) -> Call:
    indexing.index()
    indexing.upload(content="2")
    claim = indexing.bring_to(VersionStatus.STORING).claim
    return lambda connection: complete_attempt(connection, claim)


def complete_behind_a_newer_one(indexing: Indexing, _: Force) -> Call:
    indexing.upload()
    claim = indexing.bring_to(VersionStatus.STORING).claim
    indexing.index(content="2")
    return lambda connection: complete_attempt(connection, claim)


def claim(indexing: Indexing, force: Force) -> Call:
    """With one lease to recover as a failure, one as a release, and two jobs that are due."""
    for number in range(4):
        indexing.upload(f"{number}.txt")
    indexing.bring_to(VersionStatus.PARSING)
    indexing.claim()
    indexing.connection.commit()
    force(EXPIRE)
    return lambda connection: len(claim_jobs(connection, indexing.worker_id, 10, list(Task)))


def claim_to_begin_at_once(indexing: Indexing, force: Force) -> Call:
    claim(indexing, force)
    return lambda connection: len(claim_and_begin(connection, indexing.worker_id, 10, list(Task), LEASE))


def go_on_without_a_message(indexing: Indexing, _: Force) -> Call:
    indexing.upload()
    claim = indexing.bring_to(VersionStatus.CHUNKING).claim
    indexing.chunk(claim, ["first passage ", "second passage"])
    return lambda connection: go_on(connection, claim, LEASE)


def begin(indexing: Indexing, _: Force) -> Call:
    indexing.upload()
    claim = indexing.claim().claim
    return lambda connection: begin_stage(connection, claim, Task.PARSE, indexing.worker_id, LEASE)


def extend(indexing: Indexing, _: Force) -> Call:
    indexing.upload()
    claim = indexing.bring_to(VersionStatus.PARSING).claim
    return lambda connection: extend_leases(connection, [claim], timedelta(hours=1))


def record_the_text(indexing: Indexing, _: Force) -> Call:
    indexing.upload()
    claim = indexing.bring_to(VersionStatus.PARSING).claim
    return lambda connection: record_parsed(connection, claim, Text("text"), "0" * 62 + "30", 4)


def record_the_chunks(indexing: Indexing, _: Force) -> Call:
    indexing.upload()
    claim = indexing.bring_to(VersionStatus.CHUNKING).claim
    return lambda connection: record_chunks(connection, claim, [Passage("first", 0, 5, 1, 1)])


def record_the_last_vectors(indexing: Indexing, _: Force) -> Call:
    indexing.upload()
    claim = indexing.bring_to(VersionStatus.EMBEDDING).claim
    ids = column(indexing.connection, "SELECT id FROM chunks ORDER BY id")
    return lambda connection: record_embeddings(connection, claim, ids, [[1.0, 2.0, 3.0]] * 2)


def release(indexing: Indexing, _: Force) -> Call:
    indexing.upload()
    claim = indexing.bring_to(VersionStatus.PARSING).claim
    return lambda connection: release_attempt(connection, claim)


def release_what_was_lost(indexing: Indexing, _: Force) -> Call:
    indexing.upload("a")
    indexing.upload("b")
    claim_jobs(indexing.connection, indexing.worker_id, 2, list(Task))
    return lambda connection: release_unbegun(connection, Task.PARSE, timedelta(0))


def retry(indexing: Indexing, _: Force) -> Call:
    version_id = indexing.upload().version_id
    fail_attempt(indexing.connection, indexing.bring_to(VersionStatus.STORING).claim, CORRUPT)
    return lambda connection: retry_version(connection, version_id)


def cancel(indexing: Indexing, _: Force) -> Call:
    document_id = indexing.upload().document_id
    indexing.bring_to(VersionStatus.STORING)
    indexing.upload(content="2")
    return lambda connection: cancel_document(connection, document_id)


def delete(indexing: Indexing, _: Force) -> Call:
    document_id = indexing.index().document_id
    indexing.upload(content="2")
    indexing.bring_to(VersionStatus.EMBEDDING)
    return lambda connection: delete_document(connection, document_id)


def enqueue(indexing: Indexing, _: Force) -> Call:
    """One new document, one failed one, and a name twice."""
    indexing.upload("failed")
    fail_attempt(indexing.connection, indexing.bring_to(VersionStatus.PARSING).claim, CORRUPT)
    uploads = [
        Upload("ann", name, f"file:///{name}", request_id=str(place))
        for place, name in enumerate(["new", "failed", "failed"])
    ]
    return lambda connection: enqueue_documents(connection, uploads, indexing.model_id)


TRANSITIONS = [
    fail_to_retry,
    fail_for_good,
    fail_behind_a_searchable_version,
    complete_the_first,
    complete_and_supersede,
    complete_behind_a_newer_one,
    claim,
    claim_to_begin_at_once,
    go_on_without_a_message,
    begin,
    extend,
    record_the_text,
    record_the_chunks,
    record_the_last_vectors,
    release,
    release_what_was_lost,
    retry,
    cancel,
    delete,
    enqueue,
]
REPLAYED = (
    fail_to_retry,
    fail_for_good,
    complete_the_first,
    complete_and_supersede,
    complete_behind_a_newer_one,
    enqueue,
)


@pytest.mark.parametrize("prepare", TRANSITIONS, ids=lambda prepare: prepare.__name__)
def test_a_fault_before_any_statement_changes_nothing_and_the_call_then_succeeds(
    committed: Indexing, force: Force, prepare: Callable[[Indexing, Force], Call]
) -> None:
    call = prepare(committed, force)
    connection = committed.connection
    connection.commit()
    before = dump(connection)
    connection.rollback()

    struck = 0
    while True:
        with fault_before(connection, struck + 1) as statements:
            try:
                result = call(connection)
                break
            except InjectedFault:
                struck += 1
        connection.rollback()
        assert dump(connection) == before, statements[-1]
        connection.rollback()

    assert struck == len(statements) >= 2
    connection.commit()
    after = dump(connection)
    assert after != before
    if prepare in REPLAYED:
        assert call(connection) == result
        connection.commit()
        assert dump(connection) == after


@pytest.mark.parametrize(
    "prepare", [fail_for_good, complete_and_supersede, claim], ids=lambda prepare: prepare.__name__
)
def test_a_fault_at_the_commit_changes_nothing(
    committed: Indexing, force: Force, prepare: Callable[[Indexing, Force], Call]
) -> None:
    """The connection is gone when the commit is sent: the database ends the transaction by itself."""
    call = prepare(committed, force)
    connection = committed.connection
    connection.commit()
    before = dump(connection)
    connection.rollback()
    call(connection)
    connection.connection.driver_connection.close()  # type: ignore[union-attr]
    connection.invalidate()
    connection.rollback()
    assert dump(connection) == before
    call(connection)
    connection.commit()
