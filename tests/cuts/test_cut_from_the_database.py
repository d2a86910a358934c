"""The connection to the database is cut before any message of a report, or falls silent: the report is not lost."""

import os
import time
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from domain.complete import complete_attempt
from domain.fail import fail_attempt
from domain.failures import Failure, FailureType
from domain.held import Claim
from domain.statuses import VersionStatus
from tasks.database import run_transaction, single_connection_engine, sqlstate, transaction
from tests.cuts.proxy import Proxy, Strike
from tests.domain.indexing import Indexing
from tests.domain.rows import column, embeddings, events, one, statuses
from tests.invariants import violations

pytestmark = pytest.mark.race

EVERY = int(os.environ.get("CUT_EVERY", "9"))  # of the messages; 1 is the long form
AROUND_COMMIT = 8
TIMED_OUT = Failure(FailureType.EMBEDDING_PROVIDER_UNAVAILABLE, "no answer in 30 s")
CORRUPT = Failure(FailureType.DOCUMENT_CONTENT_INVALID, "no page can be read", "CORRUPT")
LONGEST = 20.0  # s; a cut connection is noticed at once

Report = Callable[[Connection, Claim], object]


def complete(connection: Connection, claim: Claim) -> object:
    return complete_attempt(connection, claim)


def fail_to_retry(connection: Connection, claim: Claim) -> object:
    return fail_attempt(connection, claim, TIMED_OUT)


def fail_for_good(connection: Connection, claim: Claim) -> object:
    return fail_attempt(connection, claim, CORRUPT)


class Reported:
    """A document whose second version is about to be reported on, and what became of it."""

    def __init__(self, indexing: Indexing, number: int) -> None:
        self.indexing = indexing
        name = f"{number}.txt"
        self.first = indexing.index(name)
        self.second = indexing.upload(name, content="2")
        self.claim = indexing.bring_to(VersionStatus.STORING).claim
        indexing.connection.commit()

    def traces(self) -> tuple[Any, ...]:
        connection, second = self.indexing.connection, self.second.version_id
        found = (
            statuses(connection, second),
            embeddings(connection, self.first.version_id),
            embeddings(connection, second),
            events(connection, self.second.document_id),
            one(connection, "SELECT retry_count FROM embedding_jobs WHERE id = :id", id=self.claim.job_id),
            column(connection, "SELECT type FROM notifications WHERE version_id = :id", id=second),
            column(connection, "SELECT retry_count FROM processing_failures WHERE version_id = :id", id=second),
        )
        connection.rollback()
        return found


def some_of(count: int) -> Iterable[int]:
    """Every message in the long form; else one in so many, and all around the commit."""
    return [number for number in range(1, count + 1) if number % EVERY == 0 or number > count - AROUND_COMMIT]


@pytest.mark.parametrize("report", [complete, fail_to_retry, fail_for_good], ids=lambda report: report.__name__)
def test_a_report_cut_before_any_message_is_made_once_by_its_repetition(
    through_proxy: Proxy, indexing: Indexing, report: Report
) -> None:
    """Before a message is after the one before it; what comes after the last is cut too."""
    whole = Reported(indexing, 0)
    run_transaction(lambda _: None)  # connect
    through_proxy.strike_before(None)
    make(report, whole.claim)
    expected, messages = whole.traces(), len(through_proxy.passed)
    assert messages > 50

    stored, lost = 0, 0
    for number in some_of(messages):
        cut = Reported(indexing, number)
        run_transaction(lambda _: None)  # so that only the messages of the report are counted
        through_proxy.strike_before(number)
        began = time.monotonic()
        first, error = attempt(report, cut.claim)
        assert error is None or sqlstate(error) is None, number  # nothing but the cut
        lost += error is not None
        assert through_proxy.struck is not None, number
        through_proxy.strike_before(None)
        was_stored = statuses(indexing.connection, cut.second.version_id)[2] != "PROCESSING"
        indexing.connection.rollback()
        again = make(report, cut.claim)
        assert time.monotonic() - began < LONGEST, number

        assert cut.traces() == expected, number
        assert first in (None, again), number
        assert make(report, cut.claim) == again, number
        stored += first is None and was_stored
    assert lost, "no cut was noticed"
    assert stored, "no cut struck after the commit had reached the server"
    assert violations(indexing.connection) == []


@pytest.mark.parametrize(
    ("report", "before"),
    [(complete, place) for place in ("the first statement", "the middle", "COMMIT", "the answer to COMMIT")]
    + [(fail_for_good, "COMMIT")],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_a_report_on_a_silent_connection_ends_and_its_repetition_makes_it(
    through_proxy: Proxy, indexing: Indexing, report: Report, before: str
) -> None:
    """Neither side hears that the other is gone: the client gives up, and so does the server, which holds the locks."""
    whole = Reported(indexing, 0)
    silent = Reported(indexing, 1)
    engine = single_connection_engine(seconds=2)
    with engine.connect() as connection:
        through_proxy.strike_before(None)
        with transaction(connection):
            report(connection, whole.claim)
        expected, passed = whole.traces(), through_proxy.passed
        places = {"the first statement": 6, "the middle": len(passed) // 2, "COMMIT": last(passed, b"QP")}

        through_proxy.strike_before(places.get(before, last(passed, b"C")), Strike.SILENCE)
        began = time.monotonic()
        with (
            pytest.raises(DBAPIError, match="has not answered"),
            transaction(connection, statement_timeout=timedelta(seconds=1), idle_timeout=timedelta(seconds=4)),
        ):
            report(connection, silent.claim)
        assert through_proxy.struck is not None
        assert time.monotonic() - began < LONGEST

    again, error = attempt(report, silent.claim)
    while error is not None:
        assert sqlstate(error) == "55P03"  # the server has not given the other connection up yet
        assert time.monotonic() - began < LONGEST
        again, error = attempt(report, silent.claim)
    assert silent.traces() == expected
    assert make(report, silent.claim) == again
    assert violations(indexing.connection) == []


def make(report: Report, claim: Claim) -> object:
    return run_transaction(lambda connection: report(connection, claim))


def attempt(report: Report, claim: Claim) -> tuple[object, DBAPIError | None]:
    try:
        return make(report, claim), None
    except DBAPIError as error:
        return None, error


def last(passed: list[bytes], types: bytes) -> int:
    """The number of the last message that names COMMIT: the client's is a Query or a Parse, the answer a C."""
    return max(number for number, message in enumerate(passed, 1) if b"COMMIT" in message and message[:1] in types)
