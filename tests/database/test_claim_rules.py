"""When a job may be claimed, how long it is held, and by whom (rules 8 and 11 of the database)."""

import pytest
from sqlalchemy import Connection

from domain.failures import FailureType
from domain.statuses import JobStatus, VersionStatus
from tests.database.lifecycle import (
    Indexing,
    claim,
    claim_job,
    complete,
    end_attempt,
    fail,
    register_worker,
    release,
)
from tests.database.refusals import commit_checks, one, refused, run
from tests.database.states import job_in, version_in

V = VersionStatus


def set_lease(connection: Connection, of: Indexing, lease: str) -> None:
    run(
        connection,
        "UPDATE embedding_jobs SET lease_expires_at = clock_timestamp() + cast(:lease AS interval) WHERE id = :id",
        lease=lease,
        id=of.job_id,
    )


def begin(connection: Connection, of: Indexing) -> None:
    run(
        connection,
        "UPDATE indexing_attempts SET stage_started_at = now(), run_by = worker_id WHERE id = :id",
        id=of.attempt_id,
    )


def put_off(connection: Connection, of: Indexing, until: str) -> None:
    run(connection, f"UPDATE embedding_jobs SET next_retry_at = {until} WHERE id = :id", id=of.job_id)


def test_a_job_is_not_claimed_before_it_is_due(connection: Connection) -> None:
    job = job_in(connection, JobStatus.PROCESSING)
    fail(connection, job, FailureType.STORAGE_UNAVAILABLE)
    with refused(connection, "jobs_claimed_only_when_due"):
        claim_job(connection, job)


def test_a_job_whose_retry_is_due_is_claimed(connection: Connection) -> None:
    run(connection, "UPDATE failure_policies SET base_delay = '0'")
    job = job_in(connection, JobStatus.PROCESSING)
    fail(connection, job, FailureType.STORAGE_UNAVAILABLE)
    claim(connection, job)
    commit_checks(connection)


@pytest.mark.parametrize("wrong", ["attempt_no = attempt_no + 2", "attempt_no = attempt_no"])
def test_a_claim_is_the_next_attempt(connection: Connection, wrong: str) -> None:
    job = job_in(connection, JobStatus.PENDING)
    with refused(connection, "jobs_claim_is_the_next_attempt"):
        claim_with(connection, job, wrong)


def test_a_claim_counts_no_retry(connection: Connection) -> None:
    job = job_in(connection, JobStatus.PENDING)
    with refused(connection, "jobs_claim_is_the_next_attempt"):
        claim_with(connection, job, "attempt_no = attempt_no + 1, retry_count = 1")


def claim_with(connection: Connection, of: Indexing, changed: str) -> None:
    run(
        connection,
        "UPDATE embedding_jobs SET status = 'PROCESSING', worker_id = :worker, claim_token = gen_random_uuid(), "
        f"lease_expires_at = now(), {changed} WHERE id = :id",
        worker=of.worker_id,
        id=of.job_id,
    )


@pytest.mark.parametrize(
    "changed",
    ["worker_id = :worker", "claim_token = gen_random_uuid()", "attempt_no = attempt_no + 1", "retry_count = 1"],
)
def test_a_claim_never_changes_hands(connection: Connection, changed: str) -> None:
    job = job_in(connection, JobStatus.PROCESSING)
    other = {"worker": register_worker(connection)} if ":worker" in changed else {}
    with refused(connection, "jobs_claim_never_changes_hands"):
        run(connection, f"UPDATE embedding_jobs SET {changed} WHERE id = :id", id=job.job_id, **other)


def test_a_job_whose_lease_ran_out_is_not_taken_over_in_place(connection: Connection) -> None:
    job = claim(connection, job_in(connection, JobStatus.PENDING), lease="-1 minute")
    with refused(connection, "jobs_claim_never_changes_hands"):
        run(
            connection,
            "UPDATE embedding_jobs SET worker_id = :worker, claim_token = gen_random_uuid(), "
            "lease_expires_at = now() + interval '1 minute' WHERE id = :id",
            worker=register_worker(connection),
            id=job.job_id,
        )


def test_a_lease_grows(connection: Connection) -> None:
    job = claim(connection, job_in(connection, JobStatus.PENDING), lease="1 minute")
    set_lease(connection, job, "2 minutes")
    with refused(connection, "jobs_lease_only_grows"):
        set_lease(connection, job, "1 minute")


def test_a_stage_that_begins_trades_its_dispatch_lease_for_a_shorter_one_once(connection: Connection) -> None:
    job = claim(connection, job_in(connection, JobStatus.PENDING), lease="10 minutes")
    with refused(connection, "jobs_lease_only_grows"):
        set_lease(connection, job, "30 seconds")
    begin(connection, job)
    set_lease(connection, job, "30 seconds")
    with refused(connection, "jobs_lease_only_grows"):
        set_lease(connection, job, "20 seconds")


def test_a_lease_renewed_after_the_stage_began_is_not_shortened(connection: Connection) -> None:
    job = claim(connection, job_in(connection, JobStatus.PENDING), lease="1 minute")
    begin(connection, job)
    set_lease(connection, job, "10 minutes")
    with refused(connection, "jobs_lease_only_grows"):
        set_lease(connection, job, "1 minute")


@pytest.mark.parametrize("lease", ["25 hours", "infinity"])
def test_a_lease_lasts_a_day_at_most(connection: Connection, lease: str) -> None:
    waiting, running = job_in(connection, JobStatus.PENDING), job_in(connection, JobStatus.PROCESSING)
    with refused(connection, "jobs_lease_at_most_a_day"):
        claim_job(connection, waiting, lease)
    with refused(connection, "jobs_lease_at_most_a_day"):
        set_lease(connection, running, lease)


def test_a_stage_begins_once(connection: Connection) -> None:
    job = job_in(connection, JobStatus.PROCESSING)
    begin(connection, job)
    with refused(connection, "attempts_stage_begins_once"):
        begin(connection, job)


def test_a_stage_begins_again_after_it_was_handed_over(connection: Connection) -> None:
    job = job_in(connection, JobStatus.PROCESSING)
    begin(connection, job)
    run(connection, "UPDATE indexing_attempts SET stage_started_at = NULL WHERE id = :id", id=job.attempt_id)
    begin(connection, job)
    commit_checks(connection)


def test_an_attempt_does_not_complete_after_its_lease_ran_out(connection: Connection) -> None:
    job = version_in(connection, V.STORING)
    release(connection, job)
    late = claim(connection, job, lease="-1 second")
    with refused(connection, "attempts_complete_within_lease"):
        complete(connection, late)


@pytest.mark.parametrize("status", ["FAILED", "RELEASED", "CANCELLED"])
def test_an_attempt_ends_any_other_way_after_its_lease_ran_out(connection: Connection, status: str) -> None:
    job = claim(connection, job_in(connection, JobStatus.PENDING), lease="-1 second")
    end_attempt(connection, job, status)
    assert one(connection, "SELECT status FROM indexing_attempts WHERE id = :id", id=job.attempt_id) == status


@pytest.mark.parametrize(
    "wrong",
    [
        "now() - interval '1 day'",
        "'-infinity'",
        "'infinity'",
        "now() + interval '31 days'",
        "now(), retry_count = 1",
        "now(), attempt_no = 1",
    ],
)
def test_a_waiting_job_is_only_put_later_and_not_for_ever(connection: Connection, wrong: str) -> None:
    job = job_in(connection, JobStatus.PENDING)
    with refused(connection, "jobs_waiting_only_put_later"):
        put_off(connection, job, wrong)


def test_a_retry_is_not_brought_forward(connection: Connection) -> None:
    job = job_in(connection, JobStatus.PROCESSING)
    fail(connection, job, FailureType.STORAGE_UNAVAILABLE)
    put_off(connection, job, "next_retry_at + interval '5 minutes'")
    for earlier in ("next_retry_at - interval '1 microsecond'", "NULL", "now()"):
        with refused(connection, "jobs_waiting_only_put_later"):
            put_off(connection, job, earlier)


def test_a_job_s_task_follows_the_stage_whatever_is_written(connection: Connection) -> None:
    version = version_in(connection, V.UPLOADED)
    task = "SELECT task FROM embedding_jobs WHERE id = :id"
    run(connection, "UPDATE embedding_jobs SET task = 'embed' WHERE id = :id", id=version.job_id)
    assert one(connection, task, id=version.job_id) == "parse"
    stages = {stage: one(connection, task, id=version_in(connection, stage).job_id) for stage in V}
    assert {stage for stage, of in stages.items() if of == "embed"} >= {V.EMBEDDING, V.STORING}
    assert {stage for stage, of in stages.items() if of == "parse"} >= {V.UPLOADED, V.PARSING, V.CHUNKING}
