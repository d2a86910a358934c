"""Rows that no function makes, as an owner without triggers and foreign keys could: they stop nothing else."""

import logging
from datetime import timedelta

import pytest

from domain.claim import claim_jobs
from domain.recover import recover_expired_leases
from domain.release import release_unbegun
from domain.statuses import Task, VersionStatus
from tests.domain.conftest import Force
from tests.domain.indexing import Indexing
from tests.domain.rows import one, row, statuses

# Each breaks the first job, which is the longest due or expired, so that it is tried first.
BROKEN_DUE = {
    "an attempt has its next number already": """
        INSERT INTO indexing_attempts (job_id, attempt_no, worker_id, claim_token, status, finished_at)
        SELECT id, 1, (SELECT max(id) FROM workers), gen_random_uuid(), 'RELEASED', clock_timestamp()
        FROM embedding_jobs WHERE id = :job
    """,
    "an attempt of it is still STARTED": """
        INSERT INTO indexing_attempts (job_id, attempt_no, worker_id, claim_token)
        SELECT id, 7, (SELECT max(id) FROM workers), gen_random_uuid() FROM embedding_jobs WHERE id = :job
    """,
    "it counts a retry that no attempt had": "UPDATE embedding_jobs SET retry_count = 1 WHERE id = :job",
    "its version does not exist": """
        DELETE FROM document_versions WHERE id = (SELECT version_id FROM embedding_jobs WHERE id = :job)
    """,
}
BROKEN_EXPIRED = {
    "it has no attempt": "DELETE FROM indexing_attempts WHERE job_id = :job",
    "its attempt has another token": """
        UPDATE indexing_attempts SET claim_token = gen_random_uuid() WHERE job_id = :job
    """,
    "its attempt has ended": """
        UPDATE indexing_attempts SET status = 'RELEASED', finished_at = clock_timestamp() WHERE job_id = :job
    """,
    "its version has ended": """
        UPDATE document_versions SET status = 'CANCELLED', stopped_stage = 'PARSING'
        WHERE id = (SELECT version_id FROM embedding_jobs WHERE id = :job)
    """,
    "its version does not exist": """
        DELETE FROM document_versions WHERE id = (SELECT version_id FROM embedding_jobs WHERE id = :job)
    """,
    "its document does not exist": """
        DELETE FROM documents WHERE id = (SELECT document_id FROM embedding_jobs WHERE id = :job)
    """,
    "it counts a retry that no attempt had": "UPDATE embedding_jobs SET retry_count = 1 WHERE id = :job",
}
NO_OBSTACLE_TO_A_RELEASE = ("its version has ended", "its document does not exist")


def put_off(committed: Indexing, column: str, job_id: int | None) -> bool:
    """Whether the job's time is five minutes from now, give or take a slow machine."""
    job = row(committed.connection, "embedding_jobs", job_id or 0)
    left = getattr(job, column) - one(committed.connection, "SELECT clock_timestamp()")
    return bool(timedelta(minutes=4) < left <= timedelta(minutes=5))


@pytest.mark.parametrize("wrong", BROKEN_DUE)
def test_a_due_job_that_cannot_be_claimed_is_put_off_and_the_others_are_claimed(
    committed: Indexing, force: Force, caplog: pytest.LogCaptureFixture, wrong: str
) -> None:
    bad, *good = [committed.upload(f"{number}.txt") for number in range(4)]
    committed.connection.commit()
    force(BROKEN_DUE[wrong], job=bad.job_id)

    with caplog.at_level(logging.ERROR):
        claimed = claim_jobs(committed.connection, committed.worker_id, 10, list(Task))
    committed.connection.commit()

    assert [job.version_id for job in claimed] == [upload.version_id for upload in good]
    assert row(committed.connection, "embedding_jobs", bad.job_id or 0).status == "PENDING"
    assert put_off(committed, "next_retry_at", bad.job_id)
    assert f"to claim job {bad.job_id}" in caplog.text

    caplog.clear()
    assert claim_jobs(committed.connection, committed.worker_id, 10, list(Task)) == []
    assert caplog.text == "", "it costs nothing until then"


@pytest.mark.parametrize("begun", [True, False], ids=["begun", "not begun"])
@pytest.mark.parametrize("wrong", BROKEN_EXPIRED)
def test_an_expired_job_that_cannot_be_recovered_is_put_off_and_the_others_are_recovered(
    committed: Indexing, force: Force, caplog: pytest.LogCaptureFixture, wrong: str, begun: bool
) -> None:
    uploads = [committed.upload(f"{number}.txt") for number in range(3)]
    claimed = claim_jobs(committed.connection, committed.worker_id, 10, list(Task))
    if begun:
        for job in claimed:
            committed.begin(job)
    committed.connection.commit()
    bad = uploads[0].job_id
    force(BROKEN_EXPIRED[wrong], job=bad)
    force("UPDATE embedding_jobs SET lease_expires_at = clock_timestamp() - make_interval(secs => 1000 - id)")

    with caplog.at_level(logging.ERROR):
        recovered = recover_expired_leases(committed.connection)
    committed.connection.commit()

    if not begun and wrong in NO_OBSTACLE_TO_A_RELEASE:
        assert recovered == 3
    else:
        assert recovered == 2
        assert put_off(committed, "lease_expires_at", bad)
        assert f"recover job {bad}" in caplog.text
    assert row(committed.connection, "embedding_jobs", uploads[1].job_id or 0).status == "PENDING"
    assert row(committed.connection, "embedding_jobs", uploads[2].job_id or 0).status == "PENDING"


def test_more_refused_rows_than_one_recovery_takes_do_not_stop_the_next_one(committed: Indexing, force: Force) -> None:
    uploads = [committed.upload(f"{number}.txt") for number in range(23)]
    for job in claim_jobs(committed.connection, committed.worker_id, 100, list(Task)):
        committed.begin(job)
    committed.connection.commit()
    good = uploads[-1]
    force("DELETE FROM indexing_attempts WHERE job_id <> :good", good=good.job_id)
    force("UPDATE embedding_jobs SET lease_expires_at = clock_timestamp() - make_interval(secs => 1000 - id)")
    assert recover_expired_leases(committed.connection) == 0
    assert recover_expired_leases(committed.connection) == 1
    committed.connection.commit()
    assert statuses(committed.connection, good.version_id)[2] == "PENDING"


def test_a_claim_that_cannot_be_released_does_not_keep_the_lost_messages_of_others(
    committed: Indexing, force: Force, caplog: pytest.LogCaptureFixture
) -> None:
    bad, *good = [committed.upload(f"{number}.txt") for number in range(3)]
    claim_jobs(committed.connection, committed.worker_id, 10, list(Task))
    committed.connection.commit()
    force("UPDATE indexing_attempts SET claim_token = gen_random_uuid() WHERE job_id = :job", job=bad.job_id)
    force("UPDATE embedding_jobs SET updated_at = clock_timestamp() - interval '1 minute'")
    with caplog.at_level(logging.ERROR):
        released = release_unbegun(committed.connection, Task.PARSE, timedelta(seconds=5))
    committed.connection.commit()
    assert released == [upload.job_id for upload in good]
    assert f"to release job {bad.job_id}" in caplog.text


def test_a_claim_among_many_refused_rows_still_takes_what_it_may(committed: Indexing, force: Force) -> None:
    for number in range(30):
        committed.upload(f"{number}.txt")
    committed.connection.commit()
    force("UPDATE embedding_jobs SET retry_count = 1 WHERE id % 3 = 0")
    claimed = claim_jobs(committed.connection, committed.worker_id, 100, list(Task))
    committed.connection.commit()
    assert len(claimed) == 20
    assert {job.stage for job in claimed} == {VersionStatus.PARSING}
