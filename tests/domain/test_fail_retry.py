"""A failure that will be retried: when, how often, and what it leaves alone."""

from datetime import timedelta
from decimal import Decimal

import pytest
from sqlalchemy import Connection

from domain.claim import claim_jobs
from domain.fail import fail_attempt
from domain.failures import Failure, FailureType
from domain.policy import FailurePolicy, set_policy
from domain.release import release_attempt
from domain.statuses import Outcome, Task, VersionStatus
from tests.domain.conftest import Force
from tests.domain.indexing import Indexing
from tests.domain.rows import column, count, embeddings, events, last_event, one, row, statuses

STORAGE = FailureType.STORAGE_UNAVAILABLE
SECONDS = timedelta(seconds=1)
STAGES = [VersionStatus.PARSING, VersionStatus.CHUNKING, VersionStatus.EMBEDDING, VersionStatus.STORING]
RE_ENTRY = {
    VersionStatus.PARSING: "FILE_UPLOADED",
    VersionStatus.CHUNKING: "PARSING_COMPLETED",
    VersionStatus.EMBEDDING: "CHUNKING_COMPLETED",
    VersionStatus.STORING: "EMBEDDING_COMPLETED",
}


@pytest.mark.parametrize("stage", STAGES)
def test_a_failure_to_be_retried_postpones_its_job_and_leaves_version_and_document_alone(
    indexing: Indexing, connection: Connection, stage: VersionStatus
) -> None:
    uploaded = indexing.upload()
    claimed = indexing.bring_to(stage)
    document, version = (
        row(connection, "documents", uploaded.document_id),
        row(connection, "document_versions", uploaded.version_id),
    )
    stored = embeddings(connection, uploaded.version_id)
    before = last_event(connection)
    result = indexing.fail(claimed, STORAGE, "THROTTLED", "slow down")

    job = row(connection, "embedding_jobs", claimed.claim.job_id)
    assert (result.outcome, result.failed_stage, result.retry_count) == (Outcome.RETRY, stage, 1)
    assert (job.status, job.retry_count, job.next_retry_at) == ("PENDING", 1, result.next_retry_at)
    assert job.due_at == job.next_retry_at
    assert (job.worker_id, job.claim_token, job.lease_expires_at) == (None, None, None)
    assert (job.last_failure_type, job.last_failure_reason) == ("STORAGE_UNAVAILABLE", "THROTTLED")
    assert (job.last_error_message, job.last_failed_at) == ("slow down", result.failed_at)
    assert row(connection, "documents", uploaded.document_id) == document
    assert row(connection, "document_versions", uploaded.version_id) == version
    assert embeddings(connection, uploaded.version_id) == stored
    assert events(connection, uploaded.document_id, before) == [f"{stage}_FAILED", "RETRY"]
    detail = one(connection, "SELECT detail FROM indexing_events WHERE type = 'RETRY'")
    assert (detail["re_entry"], detail["delay_seconds"]) == (RE_ENTRY[stage], 10)
    assert count(connection, "notifications") == count(connection, "processing_failures") == 0
    indexing.check_commit()


def test_delays_are_10_20_and_40_seconds_exactly_and_the_fourth_failure_is_final(
    committed: Indexing, force: Force
) -> None:
    committed.upload()
    delays = []
    for retry_count in range(3):
        result = committed.fail(committed.bring_to(VersionStatus.PARSING))
        assert result.next_retry_at is not None
        assert (result.outcome, result.retry_count) == (Outcome.RETRY, retry_count + 1)
        delays.append(result.next_retry_at - result.failed_at)
        assert claim_jobs(committed.connection, committed.worker_id, 10, list(Task)) == []
        committed.connection.commit()
        force("UPDATE embedding_jobs SET next_retry_at = clock_timestamp()")
    assert delays == [10 * SECONDS, 20 * SECONDS, 40 * SECONDS]
    result = committed.fail(committed.bring_to(VersionStatus.PARSING))
    assert (result.outcome, result.retry_count, result.next_retry_at) == (Outcome.FAILED, 3, None)
    assert result.retryable, "of a kind that is retried, but its budget is used up"
    committed.connection.commit()
    assert column(committed.connection, "SELECT outcome FROM indexing_attempts ORDER BY id") == ["RETRY"] * 3 + [
        "FAILED"
    ]


@pytest.mark.parametrize("budget", [0, 1, 3])
def test_a_budget_of_n_retries_is_n_plus_one_attempts(indexing: Indexing, connection: Connection, budget: int) -> None:
    indexing.retry_at_once()
    uploaded = indexing.upload(max_retry_count=budget)
    outcomes = [indexing.fail(indexing.bring_to(VersionStatus.PARSING)).outcome for _ in range(budget + 1)]
    assert outcomes == [Outcome.RETRY] * budget + [Outcome.FAILED]
    assert claim_jobs(connection, indexing.worker_id, 10, list(Task)) == []
    job = row(connection, "embedding_jobs", uploaded.job_id or 0)
    assert (job.status, job.retry_count, job.attempt_no) == ("FAILED", budget, budget + 1)
    indexing.check_commit()


def test_the_budget_is_the_jobs_and_not_the_stages(indexing: Indexing, connection: Connection) -> None:
    indexing.retry_at_once()
    uploaded = indexing.upload()
    outcomes = [indexing.fail(indexing.bring_to(stage)).outcome for stage in STAGES]
    assert outcomes == ["RETRY", "RETRY", "RETRY", "FAILED"]
    assert statuses(connection, uploaded.version_id) == ("FAILED", "FAILED", "FAILED")


def test_a_released_attempt_is_numbered_and_not_counted(indexing: Indexing, connection: Connection) -> None:
    indexing.retry_at_once()
    indexing.upload(max_retry_count=1)
    for _ in range(3):
        release_attempt(connection, indexing.bring_to(VersionStatus.PARSING).claim)
    first = indexing.fail(indexing.bring_to(VersionStatus.PARSING))
    release_attempt(connection, indexing.bring_to(VersionStatus.PARSING).claim)
    second = indexing.fail(indexing.bring_to(VersionStatus.PARSING))
    assert (first.attempt_no, first.retry_count, first.outcome) == (4, 1, Outcome.RETRY)
    assert (second.attempt_no, second.retry_count, second.outcome) == (6, 1, Outcome.FAILED)
    indexing.check_commit()


@pytest.mark.parametrize(
    ("failure_type", "retried"),
    [
        (FailureType.STORAGE_UNAVAILABLE, True),
        (FailureType.DOCUMENT_CONTENT_INVALID, False),
        (FailureType.EMBEDDING_PROVIDER_UNAVAILABLE, True),
        (FailureType.EMBEDDING_RESULT_INVALID, False),
        (FailureType.INDEXING_STATE_INCONSISTENT, False),
        (FailureType.WORKER_INTERNAL_ERROR, True),
    ],
)
def test_what_is_retried_is_told_by_its_type(indexing: Indexing, failure_type: FailureType, retried: bool) -> None:
    indexing.upload()
    result = indexing.fail(indexing.bring_to(VersionStatus.PARSING), failure_type)
    assert (result.retryable, result.outcome) == (retried, Outcome.RETRY if retried else Outcome.FAILED)
    assert result.retry_count == (1 if retried else 0)


def test_the_policy_row_of_that_moment_decides(indexing: Indexing, connection: Connection) -> None:
    indexing.upload()
    set_policy(connection, FailurePolicy(STORAGE, True, timedelta(seconds=7), Decimal("1.5"), timedelta(seconds=9)))
    result = indexing.fail(indexing.bring_to(VersionStatus.PARSING))
    assert result.next_retry_at is not None
    assert result.next_retry_at - result.failed_at == 7 * SECONDS
    indexing.upload("other.txt")
    set_policy(connection, FailurePolicy(STORAGE, False, timedelta(0), Decimal(1), timedelta(0)))
    assert indexing.fail(indexing.bring_to(VersionStatus.PARSING)).outcome == Outcome.FAILED


def test_retry_once_at_once_is_a_policy(indexing: Indexing) -> None:
    indexing.retry_at_once()
    indexing.upload(max_retry_count=1)
    first = indexing.fail(indexing.bring_to(VersionStatus.PARSING))
    assert first.next_retry_at == first.failed_at
    assert indexing.fail(indexing.bring_to(VersionStatus.PARSING)).outcome == Outcome.FAILED


@pytest.mark.parametrize(
    ("retry_after", "delay"),
    [(None, 10), (0, 10), (-60, 10), (3, 10), (25.5, 25.5), (300, 300), (301, 300), (10**9, 300)],
)
def test_a_retry_after_lengthens_the_delay_up_to_the_longest(
    indexing: Indexing, connection: Connection, retry_after: float | None, delay: float
) -> None:
    indexing.upload()
    wait = None if retry_after is None else timedelta(seconds=retry_after)
    failure = Failure(FailureType.EMBEDDING_PROVIDER_UNAVAILABLE, "slow down", "RATE_LIMITED", wait)
    result = fail_attempt(connection, indexing.bring_to(VersionStatus.PARSING).claim, failure)
    assert result.next_retry_at is not None
    assert result.next_retry_at - result.failed_at == timedelta(seconds=delay)
    indexing.check_commit()


def test_delays_never_pass_the_longest_however_often_a_job_is_retried(committed: Indexing, force: Force) -> None:
    committed.upload(max_retry_count=1000)
    claimed = committed.bring_to(VersionStatus.PARSING)
    committed.connection.commit()
    force("UPDATE embedding_jobs SET retry_count = 900")
    result = committed.fail(claimed)
    assert result.next_retry_at is not None
    assert result.next_retry_at - result.failed_at == timedelta(minutes=5)
    committed.connection.rollback()


def test_the_last_error_is_kept_while_the_job_waits_runs_and_completes(
    indexing: Indexing, connection: Connection
) -> None:
    indexing.retry_at_once()
    uploaded = indexing.upload()
    indexing.fail(indexing.bring_to(VersionStatus.PARSING), message="the first error")
    claimed = indexing.bring_to(VersionStatus.STORING)
    running = row(connection, "embedding_jobs", uploaded.job_id or 0)
    indexing.complete(claimed)
    done = row(connection, "embedding_jobs", uploaded.job_id or 0)
    for job in (running, done):
        assert (job.last_error_message, job.retry_count) == ("the first error", 1)
        assert job.last_failed_at is not None
        assert job.next_retry_at is None


def test_a_failure_before_its_stage_begins_is_recorded_too(indexing: Indexing) -> None:
    indexing.upload()
    result = indexing.fail(indexing.claim(), FailureType.WORKER_INTERNAL_ERROR, "WORKER_KILLED")
    assert (result.outcome, result.failed_stage) == (Outcome.RETRY, VersionStatus.PARSING)
    indexing.check_commit()
