"""Which statuses an attempt may go between, by raw UPDATE as the application role."""

from itertools import product

import pytest
from sqlalchemy import Connection

from domain.statuses import AttemptStatus, JobStatus
from tests.database.lifecycle import cancel, claim_job, complete, end_attempt, fail, register_worker, release
from tests.database.refusals import commit_checks, one, refused, refused_at_commit, run
from tests.database.states import attempt_in, job_in

A = AttemptStatus
ENDED = [status for status in A if status != A.STARTED]


@pytest.mark.parametrize(("old", "new"), list(product(ENDED, A)))
def test_an_attempt_that_ended_never_changes(connection: Connection, old: AttemptStatus, new: AttemptStatus) -> None:
    attempt = attempt_in(connection, old)
    with refused(connection, "attempts_finished_never_change"):
        end_attempt(connection, attempt, new)


@pytest.mark.parametrize("status", ENDED)
def test_an_attempt_does_not_end_without_its_job(connection: Connection, status: AttemptStatus) -> None:
    attempt = attempt_in(connection, A.STARTED)
    with refused_at_commit(connection, "jobs_processing_has_its_attempt"):
        end_attempt(connection, attempt, status)


@pytest.mark.parametrize(
    ("end", "status"), [(complete, A.INDEXED), (fail, A.FAILED), (release, A.RELEASED), (cancel, A.CANCELLED)]
)
def test_a_started_attempt_ends_with_its_job(connection: Connection, end: object, status: AttemptStatus) -> None:
    attempt = attempt_in(connection, A.STARTED)
    assert callable(end)
    end(connection, attempt)
    commit_checks(connection)
    assert one(connection, "SELECT status FROM indexing_attempts WHERE id = :id", id=attempt.attempt_id) == status


def test_a_started_attempt_may_be_written_with_the_status_it_has(connection: Connection) -> None:
    attempt = attempt_in(connection, A.STARTED)
    end_attempt(connection, attempt, A.STARTED)
    commit_checks(connection)


@pytest.mark.parametrize(
    "other",
    ["attempt_no = attempt_no + 1", "worker_id = :worker", "claim_token = gen_random_uuid()", "started_at = now()"],
)
def test_an_attempt_keeps_its_number_worker_and_token(connection: Connection, other: str) -> None:
    attempt = attempt_in(connection, A.STARTED)
    worker = {"worker": register_worker(connection)} if ":worker" in other else {}
    with refused(connection, "attempts_identity_never_changes"):
        run(connection, f"UPDATE indexing_attempts SET {other} WHERE id = :id", id=attempt.attempt_id, **worker)


@pytest.mark.parametrize(
    "forged",
    [
        "attempt_no + 1, worker_id, claim_token",
        "attempt_no, worker_id, gen_random_uuid()",
        "attempt_no, (SELECT min(id) FROM workers WHERE id <> worker_id), claim_token",
    ],
)
def test_an_attempt_is_born_with_the_number_worker_and_token_of_its_claim(connection: Connection, forged: str) -> None:
    job = job_in(connection, JobStatus.PENDING)
    register_worker(connection)
    claim_job(connection, job)
    with refused(connection, "attempts_born_of_a_claim"):
        run(
            connection,
            f"INSERT INTO indexing_attempts (job_id, attempt_no, worker_id, claim_token) "
            f"SELECT id, {forged} FROM embedding_jobs WHERE id = :job",
            job=job.job_id,
        )


def test_an_attempt_is_not_born_before_its_claim(connection: Connection) -> None:
    job = job_in(connection, JobStatus.PENDING)
    with refused(connection, "attempts_born_of_a_claim"):
        run(
            connection,
            "INSERT INTO indexing_attempts (job_id, attempt_no, worker_id, claim_token) "
            "VALUES (:job, 1, :worker, gen_random_uuid())",
            job=job.job_id,
            worker=job.worker_id,
        )


@pytest.mark.parametrize("early", ["run_by", "stage_started_at", "finished_at"])
def test_an_attempt_is_born_before_its_stage_begins(connection: Connection, early: str) -> None:
    job = job_in(connection, JobStatus.PENDING)
    claim_job(connection, job)
    with refused(connection, "attempts_born_of_a_claim"):
        run(
            connection,
            f"INSERT INTO indexing_attempts (job_id, attempt_no, worker_id, claim_token, {early}) "
            f"SELECT id, attempt_no, worker_id, claim_token, {'worker_id' if early == 'run_by' else 'now()'} "
            "FROM embedding_jobs WHERE id = :job",
            job=job.job_id,
        )
