"""Every row of the table that says what an exception means."""

import psycopg
import psycopg.errors
import pytest
from billiard.exceptions import SoftTimeLimitExceeded
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError

from domain.errors import (
    AttemptConflict,
    AttemptNotCurrent,
    ClaimLost,
    NotFound,
    StageNotDue,
    VersionIncomplete,
)
from domain.failures import Failure, FailureType, StageFailed
from tasks.recording import classify
from tasks.requests import NotRegistered

STORAGE = FailureType.STORAGE_UNAVAILABLE
STATE = FailureType.INDEXING_STATE_INCONSISTENT
INTERNAL = FailureType.WORKER_INTERNAL_ERROR


def database_error(sqlstate: str) -> DBAPIError:
    """As SQLAlchemy raises what PostgreSQL answered."""
    original = psycopg.errors.lookup(sqlstate)("the server's words")
    return DBAPIError("INSERT INTO secrets VALUES (%s)", ("the document's text",), original)


def raised(connection: Connection, statement: str) -> DBAPIError:
    """What PostgreSQL really answers."""
    with pytest.raises(DBAPIError) as caught:
        connection.execute(text(statement))
    return caught.value


@pytest.mark.parametrize("failure_type", list(FailureType))
def test_what_a_stage_says_of_itself_is_taken_as_it_is(failure_type: FailureType) -> None:
    failure = Failure(failure_type, "why", "REASON")
    assert classify(StageFailed(failure)) is failure


@pytest.mark.parametrize(
    "error",
    [
        ClaimLost(1, "expired"),
        ClaimLost(1, "mismatch"),
        StageNotDue(1, "embed", "the stage has begun already"),
        AttemptConflict(1, "INDEXED"),
        AttemptNotCurrent(1, "RELEASED"),
        NotFound("job", 1),
        NotRegistered("not yet"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_lost_claim_is_no_failure(error: Exception) -> None:
    assert classify(error) is None


@pytest.mark.parametrize(
    ("error", "failure_type", "reason"),
    [
        (MemoryError(), INTERNAL, "MEMORY"),
        (SoftTimeLimitExceeded(), INTERNAL, "TIME_LIMIT"),
        (RecursionError("maximum recursion depth exceeded"), INTERNAL, None),
        (KeyError("missing"), INTERNAL, None),
        (SystemExit(3), INTERNAL, None),
        (KeyboardInterrupt(), INTERNAL, None),
        (VersionIncomplete(1, "EMBEDDING", 1, 2), STATE, None),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else str(value),
)
def test_an_exception_of_the_program_is_classified_by_its_class(
    error: BaseException, failure_type: FailureType, reason: str | None
) -> None:
    failure = classify(error)
    assert failure is not None
    assert (failure.type, failure.reason) == (failure_type, reason)
    assert failure.message.strip()


@pytest.mark.parametrize(
    ("sqlstate", "failure_type"),
    [
        ("08006", STORAGE),  # connection failure
        ("57P01", STORAGE),  # terminated by the administrator
        ("57P02", STORAGE),  # crash
        ("57P03", STORAGE),  # starting up
        ("53100", STORAGE),  # disk full
        ("53300", STORAGE),  # too many connections
        ("25006", STORAGE),  # read-only
        ("55P03", STORAGE),  # lock timeout
        ("40001", STORAGE),  # three serialization conflicts
        ("40P01", STORAGE),  # three deadlocks
        ("57014", INTERNAL),  # statement timeout
        ("23505", STATE),
        ("23503", STATE),
        ("23514", STATE),
        ("42501", INTERNAL),  # not allowed
        ("42P01", INTERNAL),  # no such table
        ("22021", INTERNAL),  # NUL
    ],
)
def test_a_database_error_is_classified_by_its_sqlstate(sqlstate: str, failure_type: FailureType) -> None:
    failure = classify(database_error(sqlstate))
    assert failure is not None
    assert failure.type == failure_type
    assert "document's text" not in failure.message


@pytest.mark.parametrize(
    "error",
    [
        OperationalError("SELECT 1", None, psycopg.OperationalError("connection refused")),
        InterfaceError("SELECT 1", None, psycopg.InterfaceError("the connection is closed")),
        psycopg.OperationalError("consuming input failed"),
    ],
    ids=["refused", "closed", "cut"],
)
def test_a_database_that_does_not_answer_is_storage_unavailable(error: Exception) -> None:
    failure = classify(error)
    assert failure is not None
    assert (failure.type, failure.reason) == (STORAGE, "DATABASE")


def test_a_refusal_of_the_database_names_its_rule_and_no_row(connection: Connection) -> None:
    error = raised(connection, "INSERT INTO workers (name, queues, concurrency) VALUES ('secret row', '{parse}', -1)")
    failure = classify(error)
    assert failure is not None
    assert failure.type == STATE
    assert "workers" in failure.message
    assert "secret row" not in failure.message


def test_an_exception_that_cannot_be_printed_is_still_a_failure() -> None:
    class Broken(Exception):
        def __str__(self) -> str:
            raise ValueError("no words")

    failure = classify(Broken())
    assert failure is not None
    assert failure.message == "Broken"
