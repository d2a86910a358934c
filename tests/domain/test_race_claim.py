"""Claims that race with each other, with recovery and with reports: every attempt is made once."""

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from sqlalchemy import Connection

from domain.claim import ClaimedJob, claim_jobs
from domain.complete import complete_attempt
from domain.enqueue import Upload, enqueue_documents
from domain.errors import AttemptConflict
from domain.fail import fail_attempt
from domain.failures import Failure, FailureType
from domain.lease import extend_leases
from domain.recover import recover_expired_leases
from domain.release import release_attempt
from domain.statuses import Task, VersionStatus
from tests.conftest import Connect, WaitUntilBlocked
from tests.domain.conftest import Force
from tests.domain.indexing import Indexing
from tests.domain.rows import column, count, one, row, statuses

pytestmark = [pytest.mark.race, pytest.mark.usefixtures("seen_for_long")]

CLAIMERS = 16
JOBS = 2000
EXPIRE = (
    "UPDATE embedding_jobs SET lease_expires_at = clock_timestamp() - interval '1 minute' WHERE status = 'PROCESSING'"
)
TIMED_OUT = Failure(FailureType.STORAGE_UNAVAILABLE, "no answer")


class Watch(threading.Thread):
    """Notes who waits for a row while others work. Waits for pages of a growing table are not meant."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self.connection = connection
        self.over = threading.Event()
        self.blocked: list[str] = []
        self.looks = 0

    def run(self) -> None:
        waiting = """
            SELECT query FROM pg_stat_activity
            WHERE wait_event_type = 'Lock' AND wait_event IN ('transactionid', 'tuple') AND datname = current_database()
        """
        while not self.over.wait(0.005):
            self.blocked += column(self.connection, waiting)
            self.connection.rollback()
            self.looks += 1


def test_sixteen_claimers_share_two_thousand_jobs_and_nobody_waits(
    committed: Indexing, connect: Connect, background: ThreadPoolExecutor
) -> None:
    uploads = [Upload("ann", f"{number}", "file:///x") for number in range(JOBS)]
    enqueue_documents(committed.connection, uploads, committed.model_id)
    committed.connection.commit()
    watch = Watch(connect())
    watch.start()

    def claim_all(connection: Connection) -> list[ClaimedJob]:
        claimed: list[ClaimedJob] = []
        while found := claim_jobs(connection, committed.worker_id, 20, list(Task)):
            connection.commit()
            claimed += found
        connection.commit()
        return claimed

    claims = [job for some in background.map(claim_all, [connect() for _ in range(CLAIMERS)]) for job in some]
    watch.over.set()
    watch.join()

    assert len(claims) == JOBS
    assert Counter(job.claim.job_id for job in claims).most_common(1)[0][1] == 1
    assert {job.attempt_no for job in claims} == {1}
    assert len({job.claim.token for job in claims}) == JOBS
    assert column(committed.connection, "SELECT DISTINCT attempt_no FROM embedding_jobs") == [1]
    assert count(committed.connection, "indexing_attempts") == JOBS
    assert watch.looks > 0
    assert watch.blocked == []


def test_each_attempt_number_of_a_job_is_given_once_while_jobs_are_claimed_released_and_failed(
    committed: Indexing, connect: Connect, background: ThreadPoolExecutor
) -> None:
    committed.retry_at_once()
    uploads = [Upload("ann", f"{number}", "file:///x", max_retry_count=1000) for number in range(30)]
    enqueue_documents(committed.connection, uploads, committed.model_id)
    committed.connection.commit()

    def work(number: int, connection: Connection) -> list[tuple[int, int]]:
        seen = []
        for turn in range(10):
            for job in claim_jobs(connection, committed.worker_id, 3, list(Task)):
                connection.commit()
                seen.append((job.claim.job_id, job.attempt_no))
                if (turn + number) % 2:
                    release_attempt(connection, job.claim)
                else:
                    fail_attempt(connection, job.claim, TIMED_OUT)
                connection.commit()
            connection.commit()
        return seen

    seen = [pair for some in background.map(work, range(6), [connect() for _ in range(6)]) for pair in some]
    assert Counter(seen).most_common(1)[0][1] == 1
    attempts = "SELECT job_id, attempt_no FROM indexing_attempts"
    assert {(job, number) for job, number in committed.connection.exec_driver_sql(attempts)} == set(seen)
    gaps = """
        SELECT j.id FROM embedding_jobs j JOIN indexing_attempts a ON a.job_id = j.id
        GROUP BY j.id HAVING count(*) <> j.attempt_no
    """
    assert column(committed.connection, gaps) == []


def test_a_claim_passes_over_what_another_claim_is_just_taking(committed: Indexing, connect: Connect) -> None:
    uploads = [committed.upload(f"{number}.txt") for number in range(3)]
    committed.connection.commit()
    first, second = connect(), connect()
    second.exec_driver_sql("SET LOCAL lock_timeout = '1ms'")
    [one_of] = claim_jobs(first, committed.worker_id, 1, list(Task))
    others = claim_jobs(second, committed.worker_id, 10, list(Task))
    assert one_of.version_id == uploads[0].version_id
    assert [job.version_id for job in others] == [upload.version_id for upload in uploads[1:]]
    second.commit()
    first.commit()


def test_expired_leases_are_recovered_once_by_eight_claimers(
    committed: Indexing, connect: Connect, force: Force, background: ThreadPoolExecutor
) -> None:
    for number in range(60):
        committed.upload(f"{number}.txt")
    for job in claim_jobs(committed.connection, committed.worker_id, 100, list(Task)):
        committed.begin(job)
    committed.connection.commit()
    force(EXPIRE)

    def sweep(connection: Connection) -> int:
        recovered = 0
        for _ in range(8):
            recovered += recover_expired_leases(connection)
            connection.commit()
        return recovered

    assert sum(background.map(sweep, [connect() for _ in range(8)])) == 60
    assert column(committed.connection, "SELECT DISTINCT (status, retry_count)::text FROM embedding_jobs") == [
        "(PENDING,1)"
    ]
    assert count(committed.connection, "indexing_attempts") == 60


def test_a_claim_passes_over_what_another_claim_is_just_recovering(
    committed: Indexing, connect: Connect, force: Force
) -> None:
    committed.upload()
    committed.bring_to(VersionStatus.PARSING)
    committed.connection.commit()
    force(EXPIRE)
    first, second = connect(), connect()
    second.exec_driver_sql("SET LOCAL lock_timeout = '1ms'")
    assert recover_expired_leases(first) == 1
    assert claim_jobs(second, committed.worker_id, 10, list(Task)) == []
    second.commit()
    first.commit()
    assert one(first, "SELECT retry_count FROM embedding_jobs") == 1


def test_a_recovery_passes_over_an_attempt_that_is_just_completing(committed: Indexing, connect: Connect) -> None:
    """A sweep that looks while the worker completes finds nothing, before the commit and after it."""
    uploaded = committed.upload()
    claimed = committed.bring_to(VersionStatus.STORING)
    release_attempt(committed.connection, claimed.claim)
    claimed = committed.claim()
    committed.begin(claimed)
    committed.connection.commit()
    completing, sweeping = connect(), connect()

    complete_attempt(completing, claimed.claim)
    assert recover_expired_leases(sweeping) == 0
    sweeping.commit()
    completing.commit()
    assert recover_expired_leases(sweeping) == 0
    assert statuses(sweeping, uploaded.version_id) == ("INDEXED", "INDEXED", "INDEXED")


@pytest.mark.parametrize("report", ["complete", "fail"])
def test_a_report_that_waits_for_the_recovery_of_its_attempt_is_a_conflict(
    committed: Indexing,
    connect: Connect,
    force: Force,
    background: ThreadPoolExecutor,
    wait_until_blocked: WaitUntilBlocked,
    report: str,
) -> None:
    committed.upload()
    claimed = committed.bring_to(VersionStatus.STORING)
    committed.connection.commit()
    force(EXPIRE)
    sweeping, working = connect(), connect()

    assert recover_expired_leases(sweeping) == 1
    if report == "complete":
        reported = background.submit(complete_attempt, working, claimed.claim)
    else:
        reported = background.submit(fail_attempt, working, claimed.claim, TIMED_OUT)  # type: ignore[arg-type]
    wait_until_blocked(working)
    sweeping.commit()
    with pytest.raises(AttemptConflict, match="FAILED"):
        reported.result(timeout=60)
    working.rollback()
    attempt = row(working, "indexing_attempts", claimed.claim.attempt_id)
    assert (attempt.failure_reason, attempt.retry_count) == ("LEASE_EXPIRED", 1)


def test_a_recovery_that_comes_while_the_lease_is_renewed_takes_nothing(committed: Indexing, connect: Connect) -> None:
    committed.upload()
    claimed = committed.bring_to(VersionStatus.PARSING)
    committed.connection.commit()
    renewing, sweeping = connect(), connect()
    assert extend_leases(renewing, [claimed.claim], timedelta(minutes=5)) == []
    assert recover_expired_leases(sweeping) == 0
    sweeping.commit()
    renewing.commit()
    assert row(sweeping, "embedding_jobs", claimed.claim.job_id).status == "PROCESSING"
