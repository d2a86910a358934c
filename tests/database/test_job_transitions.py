"""Which statuses a job may go between, by raw UPDATE as the application role."""

from itertools import product

import pytest
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from domain.failures import FailureType
from domain.statuses import JobStatus, VersionStatus
from tests.database.lifecycle import (
    Indexing,
    cancel,
    claim,
    claim_job,
    complete,
    end_attempt,
    end_job,
    fail,
    release,
)
from tests.database.refusals import commit_checks, one, refused, refused_at_commit, run
from tests.database.states import job_in, version_in

J = JobStatus
TERMINAL = (J.INDEXED, J.FAILED, J.CANCELLED)
UNCLAIMED = "status = 'PENDING', worker_id = NULL, claim_token = NULL, lease_expires_at = NULL"

# What a bare UPDATE of the status is refused for; those of a terminal job are its history.
REFUSED = {
    (J.PENDING, J.INDEXED): "jobs_transition_known",
    (J.PENDING, J.FAILED): "jobs_transition_known",
    (J.PROCESSING, J.PENDING): "jobs_follow_their_attempt",
    (J.PROCESSING, J.INDEXED): "jobs_follow_their_attempt",
    (J.PROCESSING, J.FAILED): "jobs_follow_their_attempt",
    **{pair: "jobs_terminal_never_change" for pair in product(TERMINAL, J)},
}
REFUSED_AT_COMMIT = {
    (J.PENDING, J.PROCESSING): "jobs_processing_has_its_attempt",
    (J.PENDING, J.CANCELLED): "versions_agree_with_latest_job",
    (J.PROCESSING, J.CANCELLED): "attempts_started_has_its_job",
}
NO_CHANGE = {(J.PENDING, J.PENDING), (J.PROCESSING, J.PROCESSING)}


def set_status(connection: Connection, of: Indexing, status: JobStatus) -> None:
    """A bare UPDATE, with a claim exactly while PROCESSING, so that the rules of the change speak first."""
    held = one(connection, "SELECT status FROM embedding_jobs WHERE id = :job", job=of.job_id) == J.PROCESSING
    if status != J.PROCESSING:
        end_job(connection, of, status)
    elif held:
        run(connection, "UPDATE embedding_jobs SET status = 'PROCESSING' WHERE id = :job", job=of.job_id)
    else:
        claim_job(connection, of)


def test_every_pair_of_statuses_is_judged() -> None:
    assert REFUSED.keys() | REFUSED_AT_COMMIT.keys() | NO_CHANGE == set(product(J, J))


@pytest.mark.parametrize(("old", "new"), REFUSED)
def test_a_job_goes_no_other_way(connection: Connection, old: JobStatus, new: JobStatus) -> None:
    job = job_in(connection, old)
    with refused(connection, REFUSED[old, new]):
        set_status(connection, job, new)


@pytest.mark.parametrize(("old", "new"), REFUSED_AT_COMMIT)
def test_a_job_does_not_go_alone(connection: Connection, old: JobStatus, new: JobStatus) -> None:
    job = job_in(connection, old)
    with refused_at_commit(connection, REFUSED_AT_COMMIT[old, new]):
        set_status(connection, job, new)


@pytest.mark.parametrize(("old", "new"), sorted(NO_CHANGE))
def test_a_live_job_may_be_written_with_the_status_it_has(
    connection: Connection, old: JobStatus, new: JobStatus
) -> None:
    job = job_in(connection, old)
    set_status(connection, job, new)
    commit_checks(connection)


def counts_of(connection: Connection, of: Indexing) -> tuple[str, int, int]:
    job = run(connection, "SELECT status, attempt_no, retry_count FROM embedding_jobs WHERE id = :id", id=of.job_id)
    status, attempt_no, retry_count = job.one()
    return status, attempt_no, retry_count


def test_a_claim_and_its_attempt_make_a_job_processing(connection: Connection) -> None:
    job = claim(connection, job_in(connection, J.PENDING))
    commit_checks(connection)
    assert counts_of(connection, job) == (J.PROCESSING, 1, 0)


def test_a_retry_counts_one_more_and_waits_for_the_time_of_its_attempt(connection: Connection) -> None:
    job = job_in(connection, J.PROCESSING)
    fail(connection, job, FailureType.WORKER_INTERNAL_ERROR)
    commit_checks(connection)
    assert counts_of(connection, job) == (J.PENDING, 1, 1)
    assert one(
        connection,
        """
        SELECT j.due_at = j.next_retry_at AND j.next_retry_at = a.next_retry_at AND j.next_retry_at > clock_timestamp()
        FROM embedding_jobs j JOIN indexing_attempts a ON a.job_id = j.id WHERE j.id = :job
        """,
        job=job.job_id,
    )


def test_a_release_counts_nothing_and_is_due_now(connection: Connection) -> None:
    job = job_in(connection, J.PROCESSING)
    release(connection, job)
    commit_checks(connection)
    assert counts_of(connection, job) == (J.PENDING, 1, 0)
    assert one(
        connection,
        "SELECT next_retry_at IS NULL AND due_at <= clock_timestamp() FROM embedding_jobs WHERE id = :id",
        id=job.job_id,
    )


@pytest.mark.parametrize(("end", "status"), [(complete, J.INDEXED), (fail, J.FAILED), (cancel, J.CANCELLED)])
def test_a_processing_job_ends_with_its_attempt(connection: Connection, end: object, status: JobStatus) -> None:
    job = job_in(connection, J.PROCESSING)
    assert callable(end)
    end(connection, job)
    commit_checks(connection)
    assert counts_of(connection, job) == (status, 1, 0)


def test_a_pending_job_is_cancelled_without_any_attempt(connection: Connection) -> None:
    job = job_in(connection, J.PENDING)
    cancel(connection, job)
    commit_checks(connection)
    assert counts_of(connection, job) == (J.CANCELLED, 0, 0)


ENDED_OTHERWISE = {
    ("FAILED", J.INDEXED),
    ("FAILED", J.FAILED),  # its outcome is RETRY
    ("RELEASED", J.INDEXED),
    ("RELEASED", J.FAILED),
    ("INDEXED", J.PENDING),
    ("INDEXED", J.FAILED),
    ("CANCELLED", J.PENDING),
    ("CANCELLED", J.INDEXED),
    ("CANCELLED", J.FAILED),
}


@pytest.mark.parametrize(("attempt", "job_status"), sorted(ENDED_OTHERWISE))
def test_a_job_follows_no_attempt_that_ended_another_way(
    connection: Connection, attempt: str, job_status: JobStatus
) -> None:
    job = job_in(connection, J.PROCESSING)
    end_attempt(connection, job, attempt)
    with refused(connection, "jobs_follow_their_attempt"):
        end_job(connection, job, job_status)


@pytest.mark.parametrize(
    "forged",
    [
        "retry_count = retry_count, next_retry_at = :frozen",
        "retry_count = retry_count + 2, next_retry_at = :frozen",
        "retry_count = retry_count + 1, next_retry_at = cast(:frozen AS timestamptz) + interval '1 microsecond'",
        "retry_count = retry_count + 1, next_retry_at = NULL",
        "retry_count = retry_count + 1, next_retry_at = :frozen, attempt_no = attempt_no + 1",
    ],
)
def test_a_retried_job_is_the_image_of_its_attempt(connection: Connection, forged: str) -> None:
    job = job_in(connection, J.PROCESSING)
    end_attempt(connection, job, "FAILED")
    frozen = one(connection, "SELECT next_retry_at FROM indexing_attempts WHERE id = :id", id=job.attempt_id)
    with refused(connection, "jobs_follow_their_attempt"):
        run(connection, f"UPDATE embedding_jobs SET {UNCLAIMED}, {forged} WHERE id = :id", frozen=frozen, id=job.job_id)


def test_a_released_job_counts_no_retry(connection: Connection) -> None:
    job = job_in(connection, J.PROCESSING)
    end_attempt(connection, job, "RELEASED")
    with refused(connection, "jobs_follow_their_attempt"):
        run(connection, f"UPDATE embedding_jobs SET {UNCLAIMED}, retry_count = 1 WHERE id = :id", id=job.job_id)


def test_a_cancelled_job_keeps_its_counts(connection: Connection) -> None:
    job = job_in(connection, J.PENDING)
    with refused(connection, "jobs_cancelled_keep_their_counts"):
        run(
            connection,
            "UPDATE embedding_jobs SET status = 'CANCELLED', retry_count = 1 WHERE id = :id",
            id=job.job_id,
        )


@pytest.mark.parametrize("status", TERMINAL)
def test_a_refusal_names_the_function_to_use(connection: Connection, status: JobStatus) -> None:
    job = job_in(connection, status)
    with pytest.raises(DBAPIError, match=r"domain\.retry\.retry_version makes a new job"):
        run(connection, "UPDATE embedding_jobs SET status = 'PENDING' WHERE id = :id", id=job.job_id)


def test_a_pending_job_is_not_finished(connection: Connection) -> None:
    job = claim(connection, job_in(connection, J.PENDING))
    release(connection, job)
    with refused(connection, "attempts_finished_never_change"):
        end_attempt(connection, job, "INDEXED")
    with refused(connection, "jobs_transition_known"):
        end_job(connection, job, "INDEXED")


def test_a_released_job_is_claimed_again_with_the_next_number(connection: Connection) -> None:
    job = version_in(connection, VersionStatus.STORING)
    release(connection, job)
    again = claim(connection, job)
    commit_checks(connection)
    assert counts_of(connection, job) == (J.PROCESSING, 2, 0)
    assert again.token != job.token
