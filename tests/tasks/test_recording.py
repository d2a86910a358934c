"""A failure is stored once, whatever raised it, and then told to Celery."""

import pickle
from collections.abc import Callable

import pytest
from billiard.exceptions import SoftTimeLimitExceeded
from celery.exceptions import Retry
from sqlalchemy import Connection, text

from domain.claim import ClaimedJob
from domain.failures import Failure, FailureType, StageFailed
from domain.release import release_attempt
from domain.statuses import AttemptStatus, JobStatus, VersionStatus
from settings import Settings
from tasks.database import transaction
from tasks.recording import STALE, RunFailed, recording_failure
from tests.domain.indexing import Indexing


@pytest.fixture
def claimed(connected: Settings, indexing: Indexing) -> ClaimedJob:
    indexing.upload()
    claimed = indexing.bring_to(VersionStatus.PARSING)
    indexing.connection.commit()
    return claimed


def job_of(connection: Connection, claimed: ClaimedJob) -> tuple[str, int, str | None, str | None, str | None]:
    row = connection.execute(
        text(
            "SELECT status, retry_count, last_failure_type, last_failure_reason, last_error_message "
            "FROM embedding_jobs WHERE id = :id"
        ),
        {"id": claimed.claim.job_id},
    ).one()
    return tuple(row)


def fail_with(claimed: ClaimedJob, error: BaseException) -> BaseException | str | None:
    """Run a stage that raises; return what Celery is told."""
    try:
        with recording_failure(claimed.claim) as run:
            raise error
    except (Retry, RunFailed) as told:
        return told
    return run.result


def test_a_failure_that_is_retried_is_stored_and_told_as_retry(claimed: ClaimedJob, indexing: Indexing) -> None:
    failure = Failure(FailureType.STORAGE_UNAVAILABLE, "the store is away", "THROTTLED")
    told = fail_with(claimed, StageFailed(failure))
    assert isinstance(told, Retry)
    assert repr(told.exc) == (
        "RunFailed('STORAGE_UNAVAILABLE THROTTLED attempt 1 of 4, retry in 10 s: the store is away')"
    )
    assert told.when == 10
    assert job_of(indexing.connection, claimed) == (
        JobStatus.PENDING,
        1,
        "STORAGE_UNAVAILABLE",
        "THROTTLED",
        "the store is away",
    )


def test_a_final_failure_is_stored_and_told_as_failure(claimed: ClaimedJob, indexing: Indexing) -> None:
    told = fail_with(claimed, StageFailed(Failure(FailureType.DOCUMENT_CONTENT_INVALID, "damaged", "CORRUPT")))
    assert isinstance(told, RunFailed)
    assert str(told) == "DOCUMENT_CONTENT_INVALID CORRUPT after attempt 1 of 4, not retried: damaged"
    assert job_of(indexing.connection, claimed)[:2] == (JobStatus.FAILED, 0)


@pytest.mark.parametrize(
    "error",
    [MemoryError(), SoftTimeLimitExceeded(), SystemExit(1), KeyboardInterrupt(), RecursionError(), StopIteration()],
    ids=lambda error: type(error).__name__,
)
def test_nothing_a_stage_raises_escapes_unrecorded(
    claimed: ClaimedJob, indexing: Indexing, error: BaseException
) -> None:
    assert isinstance(fail_with(claimed, error), Retry)
    status, retry_count, failure_type, *_ = job_of(indexing.connection, claimed)
    assert (status, retry_count, failure_type) == (JobStatus.PENDING, 1, FailureType.WORKER_INTERNAL_ERROR)


def test_what_celery_is_told_survives_the_way_to_the_main_process(claimed: ClaimedJob) -> None:
    told = fail_with(claimed, MemoryError())
    assert repr(pickle.loads(pickle.dumps(told))) == repr(told)  # noqa: S301 - our own bytes


def test_a_lost_claim_is_stale_and_nothing_is_recorded(claimed: ClaimedJob, indexing: Indexing) -> None:
    release_attempt(indexing.connection, claimed.claim)
    indexing.connection.commit()
    assert fail_with(claimed, StageFailed(Failure(FailureType.STORAGE_UNAVAILABLE, "late"))) == STALE
    assert job_of(indexing.connection, claimed)[:3] == (JobStatus.PENDING, 0, None)


def test_text_of_the_document_in_an_unexpected_error_reaches_neither_celery_nor_the_log(
    claimed: ClaimedJob, indexing: Indexing, caplog: pytest.LogCaptureFixture
) -> None:
    told = fail_with(claimed, KeyError("a sentence of the document"))
    assert "sentence" not in repr(told)
    assert "sentence" not in repr(getattr(told, "exc", None))
    assert "sentence" not in caplog.text
    assert job_of(indexing.connection, claimed)[4] == "KeyError: 'a sentence of the document'"


def test_secrets_in_an_error_are_stored_and_told_masked(
    claimed: ClaimedJob, indexing: Indexing, connected: Settings
) -> None:
    secret = connected.secrets[0]
    told = fail_with(claimed, StageFailed(Failure(FailureType.STORAGE_UNAVAILABLE, f"password {secret} refused")))
    assert secret not in repr(told)
    assert job_of(indexing.connection, claimed)[4] == "password *** refused"


@pytest.mark.parametrize("message", ["\x00", "\ud800 half", "%s %(x)s", "\x1b[31mred", "x" * 5_000_000], ids=range(5))
def test_a_failure_is_recorded_whatever_its_text_is(claimed: ClaimedJob, indexing: Indexing, message: str) -> None:
    assert isinstance(fail_with(claimed, ValueError(message)), Retry)
    stored = job_of(indexing.connection, claimed)[4]
    assert stored is not None
    assert len(stored.encode()) <= 8 * 1024


def test_a_failure_is_recorded_on_a_second_connection_when_the_first_broke(
    claimed: ClaimedJob, indexing: Indexing, kill_sessions: Callable[[], None]
) -> None:
    def stage_that_loses_its_session() -> None:
        with recording_failure(claimed.claim), transaction() as connection:
            kill_sessions()
            connection.execute(text("SELECT 1"))

    with pytest.raises(Retry, match="STORAGE_UNAVAILABLE DATABASE"):
        stage_that_loses_its_session()
    assert job_of(indexing.connection, claimed)[2] == FailureType.STORAGE_UNAVAILABLE


def test_a_second_report_of_the_same_failure_changes_nothing(claimed: ClaimedJob, indexing: Indexing) -> None:
    failure = Failure(FailureType.STORAGE_UNAVAILABLE, "away")
    first = fail_with(claimed, StageFailed(failure))
    assert repr(fail_with(claimed, StageFailed(failure))) == repr(first)
    assert job_of(indexing.connection, claimed)[1] == 1
    counted = indexing.connection.execute(
        text("SELECT count(*) FROM indexing_attempts WHERE status = :failed"), {"failed": AttemptStatus.FAILED}
    ).scalar_one()
    assert counted == 1
