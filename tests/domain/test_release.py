"""Giving a job back unharmed: no retry is counted, and it is due at once."""

from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import Connection, text

from domain.begin import begin_stage
from domain.cancel import cancel_document
from domain.claim import claim_jobs
from domain.errors import AttemptConflict, AttemptNotCurrent, ClaimLost, NotFound
from domain.release import release_attempt, release_unbegun
from domain.statuses import Task, VersionStatus
from tests.conftest import Connect
from tests.domain.conftest import Force
from tests.domain.indexing import Indexing
from tests.domain.rows import dump, embeddings, events, last_event, other_token, row

STAGES = [VersionStatus.PARSING, VersionStatus.CHUNKING, VersionStatus.EMBEDDING, VersionStatus.STORING]
NOW = timedelta(0)
FIVE_SECONDS = timedelta(seconds=5)


@pytest.mark.parametrize("stage", STAGES)
def test_a_released_job_is_due_at_once_with_the_same_count_and_its_stage(
    indexing: Indexing, connection: Connection, stage: VersionStatus
) -> None:
    uploaded = indexing.upload()
    claimed = indexing.bring_to(stage)
    before = last_event(connection)
    release_attempt(connection, claimed.claim)
    job = row(connection, "embedding_jobs", uploaded.job_id or 0)
    assert row(connection, "indexing_attempts", claimed.claim.attempt_id).status == "RELEASED"
    assert (job.status, job.retry_count, job.next_retry_at, job.due_at) == ("PENDING", 0, None, job.created_at)
    assert (job.worker_id, job.claim_token, job.lease_expires_at) == (None, None, None)
    assert events(connection, uploaded.document_id, before) == ["RELEASED"]
    again = indexing.claim()
    assert (again.stage, again.attempt_no, again.retry_count) == (stage, 2, 0)
    indexing.check_commit()


def test_vectors_that_are_stored_stay_active_when_the_run_is_released(
    indexing: Indexing, connection: Connection
) -> None:
    uploaded = indexing.upload()
    claimed = indexing.bring_to(VersionStatus.EMBEDDING)
    indexing.embed(claimed, most=1)
    release_attempt(connection, claimed.claim)
    assert embeddings(connection, uploaded.version_id) == {"ACTIVE": 1}
    indexing.check_commit()


def test_a_retry_that_is_released_keeps_its_count_and_its_last_error(
    indexing: Indexing, connection: Connection
) -> None:
    indexing.retry_at_once()
    uploaded = indexing.upload()
    indexing.fail(indexing.bring_to(VersionStatus.PARSING), message="before")
    release_attempt(connection, indexing.bring_to(VersionStatus.PARSING).claim)
    job = row(connection, "embedding_jobs", uploaded.job_id or 0)
    assert (job.retry_count, job.next_retry_at, job.last_error_message) == (1, None, "before")
    indexing.check_commit()


def test_a_release_that_comes_again_writes_nothing(indexing: Indexing, connection: Connection) -> None:
    indexing.upload()
    claim = indexing.bring_to(VersionStatus.PARSING).claim
    release_attempt(connection, claim)
    before = dump(connection)
    for _ in range(5):
        release_attempt(connection, claim)
    assert dump(connection) == before
    indexing.claim()
    before = dump(connection)
    release_attempt(connection, claim)
    assert dump(connection) == before, "also when the job is claimed again"


def test_errors_are_told_in_the_order_in_which_they_are_found(indexing: Indexing, connection: Connection) -> None:
    uploaded = indexing.upload()
    claim = indexing.claim().claim
    wrong = replace(claim, token=other_token())
    with pytest.raises(NotFound, match="job"):
        release_attempt(connection, replace(wrong, job_id=0))
    with pytest.raises(NotFound, match="attempt"):
        release_attempt(connection, replace(wrong, attempt_id=0))
    for mismatch in (wrong, replace(claim, worker_id=claim.worker_id + 1)):
        with pytest.raises(ClaimLost, match="another worker"):
            release_attempt(connection, mismatch)
    release_attempt(connection, claim)
    with pytest.raises(AttemptNotCurrent, match="RELEASED"):
        release_attempt(connection, wrong)
    again = indexing.claim()
    begin_stage(connection, again.claim, again.task, indexing.worker_id, timedelta(microseconds=1))
    with pytest.raises(ClaimLost, match="ran out"):
        release_attempt(connection, again.claim)
    cancel_document(connection, uploaded.document_id)
    with pytest.raises(AttemptNotCurrent, match="CANCELLED"):
        release_attempt(connection, again.claim)


def test_an_attempt_that_ended_is_not_released(indexing: Indexing, connection: Connection) -> None:
    indexing.upload("a")
    indexing.upload("b")
    completed = indexing.bring_to(VersionStatus.INDEXED)
    failed = indexing.bring_to(VersionStatus.PARSING)
    indexing.fail(failed)
    for claimed in (completed, failed):
        with pytest.raises(AttemptConflict):
            release_attempt(connection, claimed.claim)


def test_claims_that_wait_for_their_message_are_released_and_those_that_began_are_not(
    indexing: Indexing, connection: Connection
) -> None:
    uploads = [indexing.upload(f"{number}.txt") for number in range(3)]
    claims = claim_jobs(connection, indexing.worker_id, 3, list(Task))
    indexing.begin(claims[1])
    assert release_unbegun(connection, Task.PARSE, NOW) == [uploads[0].job_id, uploads[2].job_id]
    assert release_unbegun(connection, Task.PARSE, NOW) == []
    again = claim_jobs(connection, indexing.worker_id, 3, list(Task))
    assert [(job.attempt_no, job.retry_count) for job in again] == [(2, 0), (2, 0)]
    indexing.check_commit()


def test_a_claim_that_has_waited_less_long_is_left_alone(committed: Indexing, force: Force) -> None:
    uploads = [committed.upload(f"{number}.txt") for number in range(2)]
    claim_jobs(committed.connection, committed.worker_id, 3, list(Task))
    committed.connection.commit()
    force(
        "UPDATE embedding_jobs SET updated_at = clock_timestamp() - interval '6 seconds' WHERE id = :id",
        id=uploads[0].job_id,
    )
    assert release_unbegun(committed.connection, Task.PARSE, FIVE_SECONDS) == [uploads[0].job_id]
    committed.connection.commit()


def test_an_attempt_that_parse_handed_over_waits_anew_and_belongs_to_embed(committed: Indexing, force: Force) -> None:
    uploaded = committed.upload()
    claimed = committed.bring_to(VersionStatus.CHUNKING)
    committed.connection.commit()
    force("UPDATE embedding_jobs SET updated_at = clock_timestamp() - interval '1 minute'")
    committed.chunk(claimed.claim, ["first passage ", "second passage"])
    assert release_unbegun(committed.connection, Task.PARSE, NOW) == []
    assert release_unbegun(committed.connection, Task.EMBED, FIVE_SECONDS) == []
    assert release_unbegun(committed.connection, Task.EMBED, NOW) == [uploaded.job_id]
    again = committed.claim()
    assert (again.stage, again.task) == (VersionStatus.EMBEDDING, Task.EMBED)
    committed.connection.rollback()


def test_the_message_of_a_released_claim_begins_nothing(indexing: Indexing, connection: Connection) -> None:
    indexing.upload()
    lost = indexing.claim()
    release_unbegun(connection, Task.PARSE, NOW)
    again = indexing.claim()
    with pytest.raises(AttemptNotCurrent):
        begin_stage(connection, lost.claim, Task.PARSE, indexing.worker_id, timedelta(minutes=1))
    begin_stage(connection, again.claim, Task.PARSE, indexing.worker_id, timedelta(minutes=1))


@pytest.mark.race
def test_claims_that_are_locked_are_passed_over(committed: Indexing, connect: Connect) -> None:
    uploads = [committed.upload(f"{number}.txt") for number in range(2)]
    claim_jobs(committed.connection, committed.worker_id, 3, list(Task))
    committed.connection.commit()
    blocker, releasing = connect(), connect()
    blocker.execute(text("SELECT FROM embedding_jobs WHERE id = :id FOR NO KEY UPDATE"), {"id": uploads[0].job_id})
    releasing.execute(text("SET LOCAL lock_timeout = '1ms'"))
    assert release_unbegun(releasing, Task.PARSE, NOW) == [uploads[1].job_id]
    releasing.commit()
