"""Reports about one attempt that race: exactly one is written, and the other hears what became of it."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from sqlalchemy import text

from domain.begin import begin_stage
from domain.complete import complete_attempt
from domain.enqueue import Upload, enqueue_document
from domain.errors import AttemptConflict, AttemptNotCurrent, ClaimLost
from domain.fail import fail_attempt
from domain.failures import Failure, FailureType
from domain.lease import extend_leases
from domain.release import release_attempt
from domain.statuses import Outcome, Task, VersionStatus
from tests.conftest import Connect, WaitUntil, WaitUntilBlocked
from tests.domain.conftest import Force
from tests.domain.indexing import Indexing
from tests.domain.rows import count, embeddings, one, statuses

pytestmark = pytest.mark.race

TIMED_OUT = Failure(FailureType.EMBEDDING_PROVIDER_UNAVAILABLE, "no answer in 30 s")
CORRUPT = Failure(FailureType.DOCUMENT_CONTENT_INVALID, "no page can be read", "CORRUPT")


def test_of_two_equal_failures_that_race_the_second_replays_the_first(
    committed: Indexing, connect: Connect, background: ThreadPoolExecutor, wait_until_blocked: WaitUntilBlocked
) -> None:
    committed.upload()
    claimed = committed.bring_to(VersionStatus.EMBEDDING)
    committed.connection.commit()
    first, second = connect(), connect()

    recorded = fail_attempt(first, claimed.claim, TIMED_OUT)
    report = background.submit(fail_attempt, second, claimed.claim, TIMED_OUT)
    wait_until_blocked(second)
    first.commit()

    assert report.result(timeout=60) == recorded
    second.commit()
    assert one(second, "SELECT retry_count FROM embedding_jobs") == 1
    assert one(second, "SELECT count(*) FROM indexing_events WHERE type = 'RETRY'") == 1


def test_of_two_equal_final_failures_that_race_one_is_notified(
    committed: Indexing, connect: Connect, background: ThreadPoolExecutor, wait_until_blocked: WaitUntilBlocked
) -> None:
    committed.upload()
    claimed = committed.bring_to(VersionStatus.PARSING)
    committed.connection.commit()
    first, second = connect(), connect()

    recorded = fail_attempt(first, claimed.claim, CORRUPT)
    report = background.submit(fail_attempt, second, claimed.claim, CORRUPT)
    wait_until_blocked(second)
    first.commit()

    assert report.result(timeout=60) == recorded
    second.commit()
    assert count(second, "notifications") == count(second, "processing_failures") == 1


def test_of_two_different_failures_that_race_the_second_is_a_conflict(
    committed: Indexing, connect: Connect, background: ThreadPoolExecutor, wait_until_blocked: WaitUntilBlocked
) -> None:
    committed.upload()
    claimed = committed.bring_to(VersionStatus.PARSING)
    committed.connection.commit()
    first, second = connect(), connect()

    fail_attempt(first, claimed.claim, CORRUPT)
    report = background.submit(fail_attempt, second, claimed.claim, TIMED_OUT)
    wait_until_blocked(second)
    first.commit()

    with pytest.raises(AttemptConflict, match="already ended FAILED"):
        report.result(timeout=60)


def test_of_a_completion_and_a_failure_that_race_the_completion_wins_when_it_is_first(
    committed: Indexing, connect: Connect, background: ThreadPoolExecutor, wait_until_blocked: WaitUntilBlocked
) -> None:
    uploaded = committed.upload()
    claimed = committed.bring_to(VersionStatus.STORING)
    committed.connection.commit()
    first, second = connect(), connect()

    complete_attempt(first, claimed.claim)
    report = background.submit(fail_attempt, second, claimed.claim, TIMED_OUT)
    wait_until_blocked(second)
    first.commit()

    with pytest.raises(AttemptConflict, match="already ended INDEXED"):
        report.result(timeout=60)
    second.rollback()
    assert statuses(second, uploaded.version_id) == ("INDEXED", "INDEXED", "INDEXED")
    assert embeddings(second, uploaded.version_id) == {"ACTIVE": 2}


@pytest.mark.parametrize("failure", [TIMED_OUT, CORRUPT], ids=["to be retried", "final"])
def test_of_a_completion_and_a_failure_that_race_the_failure_wins_when_it_is_first(
    committed: Indexing,
    connect: Connect,
    background: ThreadPoolExecutor,
    wait_until_blocked: WaitUntilBlocked,
    failure: Failure,
) -> None:
    uploaded = committed.upload()
    claimed = committed.bring_to(VersionStatus.STORING)
    committed.connection.commit()
    first, second = connect(), connect()

    ended = fail_attempt(first, claimed.claim, failure)
    report = background.submit(complete_attempt, second, claimed.claim)
    wait_until_blocked(second)
    first.commit()

    with pytest.raises(AttemptConflict, match="already ended FAILED"):
        report.result(timeout=60)
    second.rollback()
    assert statuses(second, uploaded.version_id) == (
        ("PENDING", "STORING", "PENDING") if ended.outcome == Outcome.RETRY else ("FAILED", "FAILED", "FAILED")
    )


def test_two_equal_completions_that_race_tell_the_same(
    committed: Indexing, connect: Connect, background: ThreadPoolExecutor, wait_until_blocked: WaitUntilBlocked
) -> None:
    committed.upload()
    claimed = committed.bring_to(VersionStatus.STORING)
    committed.connection.commit()
    first, second = connect(), connect()

    completed = complete_attempt(first, claimed.claim)
    report = background.submit(complete_attempt, second, claimed.claim)
    wait_until_blocked(second)
    first.commit()

    assert report.result(timeout=60) == completed
    second.commit()
    assert count(second, "notifications") == 1


def test_a_report_that_waits_for_a_release_is_not_current_any_more(
    committed: Indexing, connect: Connect, background: ThreadPoolExecutor, wait_until_blocked: WaitUntilBlocked
) -> None:
    committed.upload()
    claimed = committed.bring_to(VersionStatus.PARSING)
    committed.connection.commit()
    first, second = connect(), connect()

    release_attempt(first, claimed.claim)
    report = background.submit(fail_attempt, second, claimed.claim, TIMED_OUT)
    wait_until_blocked(second)
    first.commit()

    with pytest.raises(AttemptNotCurrent, match="RELEASED"):
        report.result(timeout=60)


def test_of_two_messages_for_one_claim_that_race_one_begins_the_stage(
    committed: Indexing, connect: Connect, background: ThreadPoolExecutor, wait_until_blocked: WaitUntilBlocked
) -> None:
    committed.upload()
    claimed = committed.claim()
    committed.connection.commit()
    first, second = connect(), connect()
    lease = timedelta(minutes=1)

    begin_stage(first, claimed.claim, Task.PARSE, committed.worker_id, lease)
    begun = background.submit(begin_stage, second, claimed.claim, Task.PARSE, committed.worker_id, lease)
    wait_until_blocked(second)
    first.commit()

    with pytest.raises(Exception, match="has begun already"):
        begun.result(timeout=60)


@pytest.mark.parametrize("table", ["embedding_jobs", "document_versions", "documents"])
def test_a_completion_is_refused_when_the_lease_ends_while_it_waits_for_a_lock(
    committed: Indexing,
    connect: Connect,
    background: ThreadPoolExecutor,
    wait_until: WaitUntil,
    table: str,
) -> None:
    uploaded = committed.upload()
    claimed = committed.bring_to(VersionStatus.STORING)
    release_attempt(committed.connection, claimed.claim)
    claimed = committed.claim()
    begin_stage(committed.connection, claimed.claim, Task.EMBED, committed.worker_id, timedelta(seconds=1))
    committed.connection.commit()
    blocker, completing, watcher = connect(), connect(), connect()

    blocker.execute(text(f"SELECT FROM {table} FOR NO KEY UPDATE"))
    completed = background.submit(complete_attempt, completing, claimed.claim)
    over = "SELECT lease_expires_at <= clock_timestamp() FROM embedding_jobs"
    wait_until(lambda: one(watcher, over))
    blocker.rollback()

    with pytest.raises(ClaimLost) as lost:
        completed.result(timeout=60)
    assert lost.value.reason == "expired"
    assert one(completing, "SELECT 1") == 1, "the transaction is still usable"
    completing.commit()
    assert statuses(completing, uploaded.version_id) == ("PENDING", "STORING", "PROCESSING")


@pytest.mark.parametrize("enqueue_first", [True, False])
def test_the_document_is_right_whichever_of_a_final_failure_and_an_upload_comes_first(
    committed: Indexing,
    connect: Connect,
    background: ThreadPoolExecutor,
    wait_until_blocked: WaitUntilBlocked,
    enqueue_first: bool,
) -> None:
    uploaded = committed.upload()
    claimed = committed.bring_to(VersionStatus.PARSING)
    committed.connection.commit()
    failing, uploading = connect(), connect()
    upload = Upload("ann", "report.txt", "file:///2", "2" * 64)

    if enqueue_first:
        enqueue_document(uploading, upload, committed.model_id)
        failed = background.submit(fail_attempt, failing, claimed.claim, CORRUPT)
        wait_until_blocked(failing)
        uploading.commit()
        failed.result(timeout=60)
        failing.commit()
    else:
        fail_attempt(failing, claimed.claim, CORRUPT)
        enqueued = background.submit(enqueue_document, uploading, upload, committed.model_id)
        wait_until_blocked(uploading)
        failing.commit()
        enqueued.result(timeout=60)
        uploading.commit()

    assert statuses(uploading, uploaded.version_id) == ("PENDING", "FAILED", "FAILED")


def test_the_document_fails_with_the_last_of_two_versions_that_fail_at_once(
    committed: Indexing, connect: Connect, background: ThreadPoolExecutor, wait_until_blocked: WaitUntilBlocked
) -> None:
    uploaded = committed.upload()
    older = committed.bring_to(VersionStatus.PARSING)
    committed.upload(content="2")
    newer = committed.bring_to(VersionStatus.PARSING)
    committed.connection.commit()
    first, second = connect(), connect()

    fail_attempt(first, newer.claim, CORRUPT)
    failed = background.submit(fail_attempt, second, older.claim, CORRUPT)
    wait_until_blocked(second)
    first.commit()
    failed.result(timeout=60)
    second.commit()

    assert statuses(second, uploaded.version_id) == ("FAILED", "FAILED", "FAILED")


@pytest.mark.parametrize("newer_first", [True, False])
def test_of_two_versions_that_complete_at_once_the_newer_one_is_searched(
    committed: Indexing,
    connect: Connect,
    background: ThreadPoolExecutor,
    wait_until_blocked: WaitUntilBlocked,
    newer_first: bool,
) -> None:
    committed.index()
    older = committed.upload(content="2"), committed.bring_to(VersionStatus.STORING)
    newer = committed.upload(content="3"), committed.bring_to(VersionStatus.STORING)
    committed.connection.commit()
    one_of, other = (newer, older) if newer_first else (older, newer)
    first, second = connect(), connect()

    assert complete_attempt(first, one_of[1].claim).current
    completed = background.submit(complete_attempt, second, other[1].claim)
    wait_until_blocked(second)
    first.commit()
    assert completed.result(timeout=60).current == (not newer_first)
    second.commit()

    assert one(second, "SELECT current_version_id FROM documents") == newer[0].version_id
    assert embeddings(second, newer[0].version_id) == {"ACTIVE": 2}
    assert embeddings(second, older[0].version_id) == {"STALE": 2}
    assert one(second, "SELECT count(*) FROM embeddings WHERE status = 'ACTIVE'") == 2


def test_a_renewal_passes_over_a_job_that_is_just_ending_and_does_not_call_it_lost(
    committed: Indexing, connect: Connect
) -> None:
    committed.upload()
    claimed = committed.bring_to(VersionStatus.STORING)
    committed.connection.commit()
    completing, renewing = connect(), connect()

    complete_attempt(completing, claimed.claim)
    assert extend_leases(renewing, [claimed.claim], timedelta(minutes=1)) == []
    renewing.commit()
    completing.commit()
    assert extend_leases(renewing, [claimed.claim], timedelta(minutes=1)) == [claimed.claim]


def test_a_late_failure_of_an_attempt_that_was_recovered_changes_no_finished_job(
    committed: Indexing, connect: Connect, force: Force
) -> None:
    uploaded = committed.upload()
    lost = committed.bring_to(VersionStatus.STORING)
    committed.connection.commit()
    force("UPDATE embedding_jobs SET lease_expires_at = clock_timestamp() - interval '1 minute'")
    committed.retry_at_once()
    again = committed.bring_to(VersionStatus.INDEXED)
    committed.connection.commit()
    late = connect()

    for report in (TIMED_OUT, CORRUPT):
        with pytest.raises(AttemptConflict):
            fail_attempt(late, lost.claim, report)
    with pytest.raises(AttemptConflict):
        complete_attempt(late, lost.claim)
    with pytest.raises(AttemptConflict):
        release_attempt(late, lost.claim)
    late.rollback()

    assert again.attempt_no == 2
    assert statuses(late, uploaded.version_id) == ("INDEXED", "INDEXED", "INDEXED")
