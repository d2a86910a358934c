"""What becomes of a claim whose lease ran out: the next claim ends it, and waits for nobody."""

from datetime import timedelta

import pytest
from sqlalchemy import text

from domain.begin import begin_stage
from domain.cancel import cancel_document
from domain.claim import claim_jobs
from domain.complete import complete_attempt
from domain.errors import AttemptConflict, AttemptNotCurrent, ClaimLost
from domain.fail import fail_attempt
from domain.failures import Failure, FailureType
from domain.lease import extend_leases
from domain.recover import AT_MOST, recover_expired_leases
from domain.release import release_attempt
from domain.statuses import Task, VersionStatus
from tests.conftest import Connect, WaitUntil
from tests.domain.conftest import Force
from tests.domain.indexing import Indexing
from tests.domain.rows import column, events, last_event, one, row, statuses

EXPIRE = (
    "UPDATE embedding_jobs SET lease_expires_at = clock_timestamp() - interval '1 minute' WHERE status = 'PROCESSING'"
)


def test_an_expired_run_lease_is_a_failure_that_is_retried(committed: Indexing, force: Force) -> None:
    uploaded = committed.upload()
    claimed = committed.bring_to(VersionStatus.CHUNKING)
    committed.connection.commit()
    before = last_event(committed.connection)
    force(EXPIRE)

    assert recover_expired_leases(committed.connection) == 1
    committed.connection.commit()
    attempt = row(committed.connection, "indexing_attempts", claimed.claim.attempt_id)
    job = row(committed.connection, "embedding_jobs", claimed.claim.job_id)
    assert (attempt.status, attempt.failed_stage, attempt.outcome) == ("FAILED", "CHUNKING", "RETRY")
    assert (attempt.failure_type, attempt.failure_reason) == ("WORKER_INTERNAL_ERROR", "LEASE_EXPIRED")
    assert f"worker {committed.worker_id} " in attempt.error_message
    assert attempt.next_retry_at - attempt.finished_at == timedelta(seconds=10)
    assert (job.status, job.retry_count, job.next_retry_at) == ("PENDING", 1, attempt.next_retry_at)
    assert events(committed.connection, uploaded.document_id, before) == ["CHUNKING_FAILED", "RETRY"]


def test_an_expired_dispatch_lease_is_a_release_that_burns_no_retry(committed: Indexing, force: Force) -> None:
    uploaded = committed.upload()
    claimed = committed.claim()
    committed.connection.commit()
    before = last_event(committed.connection)
    force(EXPIRE)

    again = committed.claim()
    committed.connection.commit()
    assert (again.attempt_no, again.retry_count) == (2, 0)
    assert row(committed.connection, "indexing_attempts", claimed.claim.attempt_id).status == "RELEASED"
    assert events(committed.connection, uploaded.document_id, before) == ["RELEASED", "CLAIMED"]


def test_an_attempt_that_parse_handed_over_and_nobody_took_is_released(committed: Indexing, force: Force) -> None:
    committed.upload()
    claimed = committed.bring_to(VersionStatus.CHUNKING)
    committed.chunk(claimed.claim, ["first passage ", "second passage"])
    committed.connection.commit()
    force(EXPIRE)
    again = committed.claim()
    assert (again.attempt_no, again.retry_count, again.stage) == (2, 0, VersionStatus.EMBEDDING)


def test_a_document_that_kills_its_worker_fails_after_four_attempts(committed: Indexing, force: Force) -> None:
    uploaded = committed.upload()
    committed.retry_at_once()
    for attempt_no in range(1, 5):
        claimed = committed.bring_to(VersionStatus.PARSING)
        assert claimed.attempt_no == attempt_no
        committed.connection.commit()
        force(EXPIRE)
    assert claim_jobs(committed.connection, committed.worker_id, 10, list(Task)) == []
    committed.connection.commit()
    assert statuses(committed.connection, uploaded.version_id) == ("FAILED", "FAILED", "FAILED")
    reasons = column(committed.connection, "SELECT failure_reason FROM indexing_attempts ORDER BY id")
    assert reasons == ["LEASE_EXPIRED"] * 4


def test_nothing_of_an_expired_claim_is_taken_any_more(committed: Indexing, force: Force) -> None:
    committed.upload()
    claim = committed.bring_to(VersionStatus.STORING).claim
    committed.connection.commit()
    force(EXPIRE)
    timeout = Failure(FailureType.STORAGE_UNAVAILABLE, "no answer")
    for report in (
        lambda: complete_attempt(committed.connection, claim),
        lambda: fail_attempt(committed.connection, claim, timeout),
        lambda: release_attempt(committed.connection, claim),
    ):
        with pytest.raises(ClaimLost) as lost:
            report()
        assert lost.value.reason == "expired"
    assert extend_leases(committed.connection, [claim], timedelta(minutes=1)) == [claim]
    recover_expired_leases(committed.connection)
    with pytest.raises(AttemptConflict):
        complete_attempt(committed.connection, claim)


def test_nothing_of_a_released_claim_is_taken_any_more(committed: Indexing, force: Force) -> None:
    committed.upload()
    claim = committed.claim().claim
    committed.connection.commit()
    force(EXPIRE)
    recover_expired_leases(committed.connection)
    with pytest.raises(AttemptNotCurrent):
        begin_stage(committed.connection, claim, Task.PARSE, committed.worker_id, timedelta(minutes=1))


def test_twenty_expired_leases_are_recovered_at_a_time_the_oldest_first(committed: Indexing, force: Force) -> None:
    for number in range(AT_MOST + 5):
        committed.upload(f"{number}.txt")
    claim_jobs(committed.connection, committed.worker_id, 100, list(Task))
    committed.connection.commit()
    force(
        "UPDATE embedding_jobs SET lease_expires_at = clock_timestamp() - make_interval(secs => 1000 - id) "
        "WHERE status = 'PROCESSING'"
    )
    assert AT_MOST == 20
    assert recover_expired_leases(committed.connection) == AT_MOST
    committed.connection.commit()
    left = "SELECT id FROM embedding_jobs WHERE status = 'PROCESSING' ORDER BY id"
    newest = column(committed.connection, "SELECT id FROM embedding_jobs ORDER BY id OFFSET :n", n=AT_MOST)
    assert column(committed.connection, left) == newest
    assert recover_expired_leases(committed.connection) == 5


def test_a_lease_that_is_renewed_in_time_is_never_swept(committed: Indexing, wait_until: WaitUntil) -> None:
    """A sweep runs between the renewals, for half as long again as one lease."""
    committed.upload()
    claim = committed.claim().claim
    lease = timedelta(seconds=2)
    begin_stage(committed.connection, claim, Task.PARSE, committed.worker_id, lease)
    committed.connection.commit()
    began = one(committed.connection, "SELECT stage_started_at FROM indexing_attempts")

    def renewed_for_longer_than_a_lease() -> bool:
        assert extend_leases(committed.connection, [claim], lease) == []
        assert recover_expired_leases(committed.connection) == 0
        over = one(committed.connection, "SELECT clock_timestamp() - cast(:began AS timestamptz)", began=began)
        committed.connection.commit()
        return bool(over > 1.5 * lease)

    wait_until(renewed_for_longer_than_a_lease)


@pytest.mark.race
@pytest.mark.parametrize("table", ["embedding_jobs", "document_versions", "documents"])
def test_recovery_waits_for_no_lock(committed: Indexing, connect: Connect, force: Force, table: str) -> None:
    uploaded = committed.upload()
    committed.bring_to(VersionStatus.PARSING)
    committed.upload("other.txt")
    committed.bring_to(VersionStatus.PARSING)
    committed.connection.commit()
    force(EXPIRE)
    blocker, recovering = connect(), connect()
    first = {"embedding_jobs": uploaded.job_id, "document_versions": uploaded.version_id}.get(
        table, uploaded.document_id
    )
    blocker.execute(text(f"SELECT FROM {table} WHERE id = :id FOR NO KEY UPDATE"), {"id": first})
    recovering.execute(text("SET LOCAL lock_timeout = '1ms'"))

    assert recover_expired_leases(recovering) == 1, "only what is locked is passed over, and it does not count"
    recovering.commit()
    assert one(recovering, "SELECT status FROM embedding_jobs WHERE id = :id", id=uploaded.job_id) == "PROCESSING"
    left = one(recovering, "SELECT lease_expires_at < clock_timestamp() FROM embedding_jobs WHERE id = :id", id=first)
    assert left, "its turn comes again: it is not put off"
    blocker.rollback()
    recovering.rollback()
    assert recover_expired_leases(recovering) == 1


def test_an_expired_claim_of_a_document_that_was_cancelled_is_gone(committed: Indexing, force: Force) -> None:
    uploaded = committed.upload()
    committed.bring_to(VersionStatus.PARSING)
    committed.connection.commit()
    force(EXPIRE)
    cancel_document(committed.connection, uploaded.document_id)
    assert recover_expired_leases(committed.connection) == 0
    committed.connection.commit()
