"""The attempt decides: its trigger fills in the frozen result, from the policy row and the locked job (rule 9)."""

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import Connection

from domain.failures import FailureType
from domain.statuses import STAGES, VersionStatus
from tests.database.lifecycle import Indexing, claim, end_attempt, end_job, fail, stop, upload
from tests.database.refusals import commit_checks, one, refused, refused_at_commit, row, run
from tests.database.states import version_in

TRANSIENT = FailureType.EMBEDDING_PROVIDER_UNAVAILABLE
SECOND = timedelta(seconds=1)


def set_policy(connection: Connection, base_delay: str, factor: str = "2", max_delay: str = "5 minutes") -> None:
    run(
        connection,
        "UPDATE failure_policies SET base_delay = cast(:base AS interval), factor = cast(:factor AS numeric), "
        "max_delay = cast(:longest AS interval)",
        base=base_delay,
        factor=factor,
        longest=max_delay,
    )


def result(connection: Connection, of: Indexing) -> dict[str, Any]:
    return row(
        connection,
        "SELECT outcome, retryable, retry_count, max_retry_count, failed_stage, next_retry_at, "
        "next_retry_at - finished_at AS delay FROM indexing_attempts WHERE id = :id",
        id=of.attempt_id,
    )


def fail_at(
    connection: Connection, retry_count: int, budget: int = 1000, retry_after: str | None = None
) -> dict[str, Any]:
    """Fail the attempt of a job that has been retried so often already, for a reason that passes."""
    job = upload(connection, max_retry_count=budget)
    # Rewinding time or counts is refused to everyone but a superuser.
    run(connection, "SET LOCAL session_replication_role = replica")
    run(connection, "UPDATE embedding_jobs SET retry_count = :n WHERE id = :id", n=retry_count, id=job.job_id)
    run(connection, "SET LOCAL session_replication_role = origin")
    job = claim(connection, job)
    run(
        connection,
        "UPDATE indexing_attempts SET status = 'FAILED', failure_type = :type, error_message = 'x', "
        "retry_after = cast(:retry_after AS interval) WHERE id = :id",
        type=TRANSIENT,
        retry_after=retry_after,
        id=job.attempt_id,
    )
    return result(connection, job)


def fail_until_final(connection: Connection, budget: int) -> list[dict[str, Any]]:
    """Fail and claim a job until it is FAILED; time is skipped by postponing nothing (base_delay 0)."""
    job = upload(connection, max_retry_count=budget)
    results = []
    for _ in range(budget + 2):
        job = claim(connection, job)
        fail(connection, job, TRANSIENT)
        commit_checks(connection)
        results.append(result(connection, job))
        if results[-1]["outcome"] == "FAILED":
            break
    return results


@pytest.mark.parametrize("budget", [0, 1, 3])
def test_a_budget_of_n_retries_is_n_plus_one_attempts(connection: Connection, budget: int) -> None:
    set_policy(connection, "0")
    results = fail_until_final(connection, budget)
    assert [r["outcome"] for r in results] == ["RETRY"] * budget + ["FAILED"]
    assert [r["retry_count"] for r in results] == [*range(1, budget + 1), budget]
    assert {r["max_retry_count"] for r in results} == {budget}


def test_retry_once_at_once_is_a_base_delay_of_zero(connection: Connection) -> None:
    set_policy(connection, "0", factor="100")
    first, second = fail_until_final(connection, budget=1)
    assert first["delay"] == timedelta(0)
    assert second["next_retry_at"] is None


@pytest.mark.parametrize(
    ("retry_count", "seconds"),
    [(0, 10), (1, 20), (2, 40), (3, 80), (4, 160), (5, 300), (20, 300), (21, 300), (999, 300)],
)
def test_delays_double_from_ten_seconds_up_to_five_minutes(
    superuser: Connection, retry_count: int, seconds: int
) -> None:
    failed = fail_at(superuser, retry_count)
    assert failed["outcome"] == "RETRY"
    assert failed["delay"] == seconds * SECOND
    assert failed["retry_count"] == retry_count + 1


@pytest.mark.parametrize("failure_type", FailureType)
def test_the_first_delay_of_every_retried_type_is_ten_seconds(
    connection: Connection, failure_type: FailureType
) -> None:
    job = version_in(connection, VersionStatus.PARSING)
    end_attempt(connection, job, "FAILED", failure_type)
    failed = result(connection, job)
    if failed["retryable"]:
        assert (failed["outcome"], failed["delay"]) == ("RETRY", 10 * SECOND)
    else:
        assert (failed["outcome"], failed["delay"], failed["retry_count"]) == ("FAILED", None, 0)


def test_the_types_that_are_retried_are_those_that_may_pass(connection: Connection) -> None:
    retried = run(connection, "SELECT failure_type FROM failure_policies WHERE retryable").scalars()
    assert set(retried) == {"STORAGE_UNAVAILABLE", "EMBEDDING_PROVIDER_UNAVAILABLE", "WORKER_INTERNAL_ERROR"}


@pytest.mark.parametrize(
    ("retry_after", "seconds"),
    [("5 seconds", 10), ("11.5 seconds", Decimal("11.5")), ("1 hour", 300), ("infinity", 300), ("-1 hour", 10)],
)
def test_retry_after_lengthens_the_delay_up_to_the_longest(
    superuser: Connection, retry_after: str, seconds: Decimal
) -> None:
    assert fail_at(superuser, 0, retry_after=retry_after)["delay"] == float(seconds) * SECOND


@pytest.mark.parametrize(
    ("base_delay", "factor", "max_delay", "retry_count", "delay"),
    [
        ("10 seconds", "1", "5 minutes", 999, timedelta(seconds=10)),
        ("10 seconds", "1.5", "5 minutes", 2, timedelta(seconds=22.5)),
        ("30 days", "100", "30 days", 999, timedelta(days=30)),
        ("1 microsecond", "100", "30 days", 20, timedelta(days=30)),
        ("1 month", "2", "30 days", 0, timedelta(days=30)),
        ("0", "100", "0", 20, timedelta(0)),
    ],
)
def test_extreme_policies_overflow_nothing(
    superuser: Connection, base_delay: str, factor: str, max_delay: str, retry_count: int, delay: timedelta
) -> None:
    set_policy(superuser, base_delay, factor, max_delay)
    assert fail_at(superuser, retry_count)["delay"] == delay


def test_the_exponent_stops_at_twenty(superuser: Connection) -> None:
    # 1.3 ^ 20 is 190; ^ 21 would be 247.
    set_policy(superuser, "1 second", "1.3", "30 days")
    assert fail_at(superuser, 20)["delay"] == fail_at(superuser, 999)["delay"]


def test_a_changed_policy_counts_from_the_next_failure_on(connection: Connection) -> None:
    failed, held = version_in(connection, VersionStatus.PARSING), version_in(connection, VersionStatus.PARSING)
    end_attempt(connection, failed, "FAILED", TRANSIENT)
    before = result(connection, failed)
    run(connection, "UPDATE failure_policies SET retryable = false")
    end_attempt(connection, held, "FAILED", TRANSIENT)
    assert (before["outcome"], result(connection, held)["outcome"]) == ("RETRY", "FAILED")
    assert result(connection, failed) == before


def test_the_database_fills_in_the_result_whatever_is_written(connection: Connection) -> None:
    job = version_in(connection, VersionStatus.CHUNKING)
    run(
        connection,
        "UPDATE indexing_attempts SET status = 'FAILED', failure_type = 'DOCUMENT_CONTENT_INVALID', "
        "error_message = 'x', failed_stage = 'STORING', retryable = true, outcome = 'RETRY', retry_count = 99, "
        "max_retry_count = 99, next_retry_at = 'infinity', finished_at = '-infinity' WHERE id = :id",
        id=job.attempt_id,
    )
    failed = result(connection, job)
    assert failed == {
        "outcome": "FAILED",
        "retryable": False,
        "retry_count": 0,
        "max_retry_count": 3,
        "failed_stage": "CHUNKING",
        "next_retry_at": None,
        "delay": None,
    }


@pytest.mark.parametrize("stage", STAGES)
def test_a_failure_names_the_stage_it_happened_in(connection: Connection, stage: VersionStatus) -> None:
    job = version_in(connection, stage)
    fail(connection, job, TRANSIENT)
    commit_checks(connection)
    assert result(connection, job)["failed_stage"] == stage


@pytest.mark.parametrize("failure_type", ["NO_SUCH_TYPE", None])
def test_a_failure_is_of_a_type_that_has_a_policy(connection: Connection, failure_type: str | None) -> None:
    job = version_in(connection, VersionStatus.PARSING)
    with refused(connection, "attempts_failure_type_known"):
        run(
            connection,
            "UPDATE indexing_attempts SET status = 'FAILED', failure_type = :type, error_message = 'x' WHERE id = :id",
            type=failure_type,
            id=job.attempt_id,
        )


def test_a_final_failure_is_not_called_a_cancellation(connection: Connection) -> None:
    job = version_in(connection, VersionStatus.PARSING)
    end_attempt(connection, job, "FAILED", FailureType.DOCUMENT_CONTENT_INVALID)
    with refused_at_commit(connection, "jobs_failed_iff_last_attempt_is"):
        stop(connection, job, "CANCELLED")


def test_a_completion_is_not_called_a_cancellation(connection: Connection) -> None:
    job = version_in(connection, VersionStatus.STORING)
    end_attempt(connection, job, "INDEXED")
    with refused_at_commit(connection, "jobs_indexed_iff_last_attempt_is"):
        stop(connection, job, "CANCELLED")


def test_a_failed_job_keeps_the_error_of_its_last_attempt(connection: Connection) -> None:
    job = version_in(connection, VersionStatus.PARSING)
    run(
        connection,
        "UPDATE indexing_attempts SET status = 'FAILED', failure_type = 'STORAGE_UNAVAILABLE', "
        "failure_reason = 'SOURCE_CHANGED', error_message = 'it moved' WHERE id = :id",
        id=job.attempt_id,
    )
    end_job(connection, job, "PENDING")
    commit_checks(connection)
    assert one(
        connection,
        "SELECT (j.last_failure_type, j.last_failure_reason, j.last_error_message, j.last_failed_at) "
        "= (a.failure_type, a.failure_reason, a.error_message, a.finished_at) "
        "FROM embedding_jobs j JOIN indexing_attempts a ON a.job_id = j.id WHERE j.id = :id",
        id=job.job_id,
    )
