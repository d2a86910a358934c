"""Ending an attempt in failure: errors in their order, and the same answer to the same report."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection

from domain.begin import begin_stage
from domain.cancel import cancel_document
from domain.errors import AttemptConflict, AttemptNotCurrent, ClaimLost, InvalidRequest, NotFound
from domain.fail import AttemptFailed, fail_attempt
from domain.failures import Failure, FailureType, clean_error_message
from domain.release import release_attempt
from domain.statuses import AttemptStatus, Outcome, VersionStatus
from tests.domain.indexing import Indexing
from tests.domain.rows import dump, one, other_token, row, statuses

TIMED_OUT = Failure(FailureType.EMBEDDING_PROVIDER_UNAVAILABLE, "no answer in 30 s", "TIMEOUT")
CORRUPT = Failure(FailureType.DOCUMENT_CONTENT_INVALID, "no page can be read", "CORRUPT")


def test_the_result_of_a_failure_is_what_its_row_says(indexing: Indexing, connection: Connection) -> None:
    indexing.upload()
    claim = indexing.bring_to(VersionStatus.EMBEDDING).claim
    result = fail_attempt(connection, claim, TIMED_OUT)
    stored = row(connection, "indexing_attempts", claim.attempt_id)
    assert result == AttemptFailed(
        job_id=claim.job_id,
        attempt_id=claim.attempt_id,
        attempt_no=1,
        status=AttemptStatus.FAILED,
        failed_stage=VersionStatus.EMBEDDING,
        failure_type=FailureType.EMBEDDING_PROVIDER_UNAVAILABLE,
        failure_reason="TIMEOUT",
        error_message="no answer in 30 s",
        retryable=True,
        outcome=Outcome.RETRY,
        retry_count=1,
        max_retry_count=3,
        next_retry_at=stored.next_retry_at,
        failed_at=stored.finished_at,
    )


@pytest.mark.parametrize("failure", [TIMED_OUT, CORRUPT], ids=["to be retried", "final"])
def test_the_same_report_again_gets_the_frozen_result_and_writes_nothing(
    indexing: Indexing, connection: Connection, failure: Failure
) -> None:
    indexing.upload()
    claim = indexing.bring_to(VersionStatus.PARSING).claim
    result = fail_attempt(connection, claim, failure)
    before = dump(connection)
    for again in (failure, replace(failure, reason=None), replace(failure, retry_after=timedelta(minutes=4))):
        assert fail_attempt(connection, claim, again) == result
    assert dump(connection) == before


def test_the_same_report_gets_the_frozen_result_whatever_happened_since(
    indexing: Indexing, connection: Connection
) -> None:
    indexing.retry_at_once()
    indexing.upload()
    claim = indexing.bring_to(VersionStatus.PARSING).claim
    late = Failure(FailureType.STORAGE_UNAVAILABLE, "no answer")
    result = fail_attempt(connection, claim, late)
    again = indexing.bring_to(VersionStatus.STORING)
    assert fail_attempt(connection, claim, late) == result, "claimed again"
    indexing.complete(again)
    assert fail_attempt(connection, claim, late) == result, "completed"
    assert statuses(connection, again.version_id) == ("INDEXED", "INDEXED", "INDEXED")
    indexing.check_commit()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("nul \x00 here", "nul \x00 here"),
        ("nul \x00 here", "nul \ufffd here"),
        ("https://kim:secret@host/a", "https://kim:changed@host/a"),
        ("at https://host/a?X-Amz-Signature=1", "at https://host/a?X-Amz-Signature=2"),
        ("lone \ud800", "lone \udfff"),
        ("  padded\n", "padded"),
        ("x" * 9000, "x" * 9000),
        ("", "   "),
        ("key sk-12345678 refused", "key *** refused"),
    ],
)
def test_reports_that_are_equal_after_cleaning_are_the_same(
    indexing: Indexing, connection: Connection, first: str, second: str
) -> None:
    indexing.upload()
    claim = indexing.bring_to(VersionStatus.PARSING).claim
    secrets = ["sk-12345678"]
    result = fail_attempt(connection, claim, replace(TIMED_OUT, message=first), secrets)
    assert fail_attempt(connection, claim, replace(TIMED_OUT, message=second), secrets) == result
    assert fail_attempt(connection, claim, replace(TIMED_OUT, message=result.error_message), secrets) == result


@given(st.text(st.characters(exclude_categories=()), max_size=3000), st.booleans())
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_failure_is_recorded_and_replayed_whatever_its_text_is(
    connection: Connection, message: str, final: bool
) -> None:
    savepoint = connection.begin_nested()
    indexing = Indexing(connection)
    indexing.upload()
    claim = indexing.bring_to(VersionStatus.PARSING).claim
    failure = replace(CORRUPT if final else TIMED_OUT, message=message)
    result = fail_attempt(connection, claim, failure)
    assert result.error_message == clean_error_message(message, failure.reason or "")
    assert fail_attempt(connection, claim, failure) == result
    indexing.check_commit()
    savepoint.rollback()


def test_a_failure_without_a_text_is_named_by_its_reason_or_its_type(
    indexing: Indexing, connection: Connection
) -> None:
    indexing.upload("a")
    indexing.upload("b")
    with_reason = fail_attempt(connection, indexing.bring_to(VersionStatus.PARSING).claim, replace(CORRUPT, message=""))
    without = fail_attempt(
        connection,
        indexing.bring_to(VersionStatus.PARSING).claim,
        Failure(FailureType.WORKER_INTERNAL_ERROR, "\n"),
    )
    assert (with_reason.error_message, without.error_message) == ("CORRUPT", "WORKER_INTERNAL_ERROR")


@pytest.mark.parametrize(
    "different",
    [
        replace(TIMED_OUT, message="no answer in 31 s"),
        replace(TIMED_OUT, type=FailureType.WORKER_INTERNAL_ERROR),
        CORRUPT,
    ],
    ids=["another message", "another type", "another failure"],
)
def test_a_different_report_of_the_same_attempt_is_a_conflict_and_writes_nothing(
    indexing: Indexing, connection: Connection, different: Failure
) -> None:
    indexing.upload()
    claim = indexing.bring_to(VersionStatus.PARSING).claim
    fail_attempt(connection, claim, TIMED_OUT)
    before = dump(connection)
    with pytest.raises(AttemptConflict, match="already ended FAILED"):
        fail_attempt(connection, claim, different)
    assert dump(connection) == before


def test_only_the_worker_that_reported_it_hears_the_result_again(indexing: Indexing, connection: Connection) -> None:
    indexing.upload()
    claim = indexing.bring_to(VersionStatus.PARSING).claim
    fail_attempt(connection, claim, TIMED_OUT)
    for other in (replace(claim, token=other_token()), replace(claim, worker_id=claim.worker_id + 1)):
        with pytest.raises(AttemptConflict):
            fail_attempt(connection, other, TIMED_OUT)


def test_errors_are_told_in_the_order_in_which_they_are_found(indexing: Indexing, connection: Connection) -> None:
    indexing.upload()
    indexing.upload("other.txt")
    claim = indexing.bring_to(VersionStatus.PARSING).claim
    other = indexing.bring_to(VersionStatus.PARSING).claim
    wrong = replace(claim, token=other_token())

    def reports(report: Failure = TIMED_OUT, **changes: object) -> None:
        fail_attempt(connection, replace(wrong, **changes), report)  # type: ignore[arg-type]

    with pytest.raises(InvalidRequest):
        reports(replace(TIMED_OUT, reason="not a word"), job_id=0)
    with pytest.raises(NotFound, match="job"):
        reports(job_id=0)
    with pytest.raises(NotFound, match="attempt"):
        reports(attempt_id=0)
    with pytest.raises(NotFound, match="attempt"):
        reports(attempt_id=other.attempt_id)
    for mismatch in (wrong, replace(claim, worker_id=claim.worker_id + 1)):
        with pytest.raises(ClaimLost) as lost:
            fail_attempt(connection, mismatch, TIMED_OUT)
        assert lost.value.reason == "mismatch"

    release_attempt(connection, claim)
    with pytest.raises(AttemptNotCurrent, match="RELEASED"):
        reports()
    again = indexing.claim()
    with pytest.raises(AttemptNotCurrent, match="RELEASED"):
        reports()
    begin_stage(connection, again.claim, again.task, indexing.worker_id, timedelta(microseconds=1))
    with pytest.raises(ClaimLost) as lost:
        fail_attempt(connection, replace(again.claim, token=claim.token), TIMED_OUT)
    assert lost.value.reason == "mismatch", "told before that the lease is over"
    with pytest.raises(ClaimLost) as lost:
        fail_attempt(connection, again.claim, TIMED_OUT)
    assert lost.value.reason == "expired"
    cancel_document(connection, again.document_id)
    with pytest.raises(AttemptNotCurrent, match="CANCELLED"):
        fail_attempt(connection, again.claim, TIMED_OUT)
    indexing.check_commit()


def test_an_attempt_that_completed_does_not_fail(indexing: Indexing, connection: Connection) -> None:
    indexing.upload()
    claim = indexing.bring_to(VersionStatus.INDEXED).claim
    with pytest.raises(AttemptConflict, match="already ended INDEXED"):
        fail_attempt(connection, claim, TIMED_OUT)


@pytest.mark.parametrize("reason", ["", "lower", "2ND", "_A", "A-B", "A B", "A" * 64, "É", "A\n", "TIME\x00OUT", "Ａ"])
def test_a_reason_that_is_no_word_is_refused_before_anything_is_written(
    indexing: Indexing, connection: Connection, reason: str
) -> None:
    indexing.upload()
    claim = indexing.bring_to(VersionStatus.PARSING).claim
    with pytest.raises(InvalidRequest, match="word"):
        fail_attempt(connection, claim, replace(TIMED_OUT, reason=reason))
    assert one(connection, "SELECT status FROM indexing_attempts") == "STARTED"


@pytest.mark.parametrize("reason", ["A", "HTTP_429", "A" * 63])
def test_a_reason_that_is_a_word_is_stored(indexing: Indexing, connection: Connection, reason: str) -> None:
    indexing.upload()
    claim = indexing.bring_to(VersionStatus.PARSING).claim
    assert fail_attempt(connection, claim, replace(TIMED_OUT, reason=reason)).failure_reason == reason


def test_secrets_are_not_stored_anywhere(indexing: Indexing, connection: Connection) -> None:
    indexing.upload()
    claim = indexing.bring_to(VersionStatus.PARSING).claim
    message = "key sk-12345678 refused by https://kim:hidden1@host/?sig=hidden2; Authorization: Bearer hidden3"
    fail_attempt(connection, claim, replace(CORRUPT, message=message), ["sk-12345678"])
    everything = str(dump(connection))
    for secret in ("sk-12345678", "hidden1", "hidden2", "hidden3"):
        assert secret not in everything
