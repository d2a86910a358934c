"""Two sessions that end, claim or judge the same attempt: one of them wins, and the other is told by name."""

import pytest

from domain.failures import FailureType
from domain.statuses import VersionStatus
from tests.conftest import Connect, WaitUntilBlocked
from tests.database.lifecycle import claim, end_attempt, end_job, move_version, release, set_current
from tests.database.races import blocked, refusal
from tests.database.refusals import one, run
from tests.database.states import version_in

pytestmark = pytest.mark.race

V = VersionStatus


@pytest.mark.parametrize(
    ("first_end", "second_end"), [("INDEXED", "FAILED"), ("FAILED", "INDEXED"), ("FAILED", "FAILED")]
)
def test_of_two_ends_of_an_attempt_one_wins(
    connect: Connect, wait_until_blocked: WaitUntilBlocked, first_end: str, second_end: str
) -> None:
    first, second = connect(), connect()
    job = version_in(first, V.STORING)
    first.commit()
    end_attempt(first, job, first_end)
    with blocked(lambda: end_attempt(second, job, second_end), second, wait_until_blocked) as running:
        if first_end == "INDEXED":
            end_job(first, job, "INDEXED")
            move_version(first, job, "INDEXED")
            set_current(first, job)
        else:
            end_job(first, job, "PENDING")
        first.commit()
        assert refusal(running) == "attempts_finished_never_change"


def test_a_completion_that_waits_for_its_lock_longer_than_its_lease(
    connect: Connect, wait_until_blocked: WaitUntilBlocked
) -> None:
    holding, completing = connect(), connect()
    job = version_in(holding, V.STORING)
    release(holding, job)
    job = claim(holding, job, lease="1 second")
    holding.commit()
    run(holding, "SELECT FROM embedding_jobs WHERE id = :id FOR NO KEY UPDATE", id=job.job_id)
    with blocked(lambda: end_attempt(completing, job, "INDEXED"), completing, wait_until_blocked) as running:
        one(
            holding,
            "SELECT pg_sleep(extract(epoch FROM lease_expires_at - clock_timestamp()) + 0.01) IS NULL "
            "FROM embedding_jobs WHERE id = :id",
            id=job.job_id,
        )
        holding.rollback()
        assert refusal(running) == "attempts_complete_within_lease"


def test_a_failure_against_a_claim_of_the_same_job(connect: Connect, wait_until_blocked: WaitUntilBlocked) -> None:
    """A claim made from an older look at the job finds it taken."""
    first, second = connect(), connect()
    job = version_in(first, V.UPLOADED)
    first.commit()
    claim(first, job)
    with blocked(lambda: claim(second, job), second, wait_until_blocked) as running:
        first.commit()
        assert refusal(running) == "jobs_claim_never_changes_hands"


def test_a_policy_that_changes_while_a_failure_is_recorded(
    connect: Connect, wait_until_blocked: WaitUntilBlocked
) -> None:
    """The outcome is judged after the wait for the job, by the policy that is committed then."""
    holding, failing = connect(), connect()
    job = version_in(holding, V.PARSING)
    holding.commit()
    run(holding, "UPDATE failure_policies SET retryable = false")
    run(holding, "SELECT FROM embedding_jobs WHERE id = :id FOR NO KEY UPDATE", id=job.job_id)
    failure_type = FailureType.STORAGE_UNAVAILABLE
    with blocked(lambda: end_attempt(failing, job, "FAILED", failure_type), failing, wait_until_blocked) as running:
        holding.commit()
        running.result(timeout=30)
    outcome = one(failing, "SELECT outcome FROM indexing_attempts WHERE id = :id", id=job.attempt_id)
    assert outcome == "FAILED"
