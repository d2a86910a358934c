"""Time is the database's: no clock of a client reaches SQL, and no time is that of a transaction's start."""

import re
from collections.abc import Iterator
from datetime import date, datetime, time
from pathlib import Path

import pytest
from sqlalchemy import Connection

import domain
from domain.cancel import cancel_document
from domain.claim import claim_jobs
from domain.delete import delete_document
from domain.failures import FailureType
from domain.lease import extend_leases
from domain.record import load_parsed
from domain.recover import recover_expired_leases
from domain.release import release_attempt, release_unbegun
from domain.retry import retry_version
from domain.statuses import Task, VersionStatus
from domain.wake import HINT_INTERVAL, claim_hint_due, longest_due_seconds
from domain.workers import note_worker_stopped
from tests.domain.indexing import LEASE, Indexing
from tests.domain.rows import column
from tests.domain.statements import executed


def values(parameters: object) -> Iterator[object]:
    """Every value in the parameters of a statement, however nested."""
    if isinstance(parameters, dict):
        for value in parameters.values():
            yield from values(value)
    elif isinstance(parameters, list | tuple):
        for value in parameters:
            yield from values(value)
    else:
        yield parameters


def live(indexing: Indexing) -> None:
    """Every function that writes, at least once, and every way a job can go."""
    connection = indexing.connection
    indexing.index("searchable.txt")
    indexing.upload("retried.txt")
    claimed = indexing.bring_to(VersionStatus.EMBEDDING)
    extend_leases(connection, [claimed.claim], LEASE)
    load_parsed(connection, claimed.version_id)
    indexing.fail(claimed)
    failed = indexing.upload("failed.txt")
    indexing.fail(indexing.bring_to(VersionStatus.PARSING), FailureType.DOCUMENT_CONTENT_INVALID)
    retry_version(connection, failed.version_id)
    release_attempt(connection, indexing.bring_to(VersionStatus.PARSING).claim)
    claim_jobs(connection, indexing.worker_id, 10, list(Task))
    release_unbegun(connection, Task.PARSE, LEASE)
    recover_expired_leases(connection)
    cancel_document(connection, failed.document_id)
    delete_document(connection, failed.document_id)
    claim_hint_due(connection, list(Task))
    longest_due_seconds(connection, list(Task))
    note_worker_stopped(connection, indexing.worker_id)


def test_the_only_time_that_is_sent_is_the_next_retry_which_a_row_said(connection: Connection) -> None:
    with executed(connection) as statements:
        live(Indexing(connection))
    sent = [
        value
        for _, parameters in statements
        for value in values(parameters)
        if isinstance(value, date | datetime | time) or (isinstance(value, str) and re.match(r"\d{4}-\d\d-\d\d", value))
    ]
    assert len(statements) > 100
    assert sent == column(connection, "SELECT next_retry_at FROM indexing_attempts WHERE next_retry_at IS NOT NULL")
    assert len(sent) == 1


def test_no_statement_asks_when_its_transaction_began(connection: Connection) -> None:
    with executed(connection) as statements:
        live(Indexing(connection))
    for sql, _ in statements:
        assert not re.search(r"\bnow\(|current_timestamp|localtimestamp|transaction_timestamp", sql, re.IGNORECASE), sql
        assert not re.search(r"'\d{4}-\d\d-\d\d", sql), sql


@pytest.mark.parametrize("path", sorted(Path(domain.__file__).parent.glob("*.py")), ids=lambda path: path.name)
def test_no_function_of_the_domain_reads_a_clock(path: Path) -> None:
    source = path.read_text()
    assert not re.search(
        r"\b(datetime|date)\.(now|today|utcnow)\b|^import time\b|\bfrom time import", source, re.MULTILINE
    )


def test_a_statement_that_ran_long_cannot_hide_a_job_that_became_due(
    indexing: Indexing, connection: Connection
) -> None:
    """Within one long transaction, which began before the upload, the job is due all the same."""
    connection.exec_driver_sql("SELECT pg_sleep(0.05)")
    indexing.upload()
    assert len(claim_jobs(connection, indexing.worker_id, 10, list(Task))) == 1
    assert HINT_INTERVAL.total_seconds() == 0.5
