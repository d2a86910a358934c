"""A worker that needs no message: it claims, begins at once, and goes on in the same attempt."""

from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import Connection, select

from domain.begin import go_on
from domain.claim import claim_and_begin
from domain.complete import complete_attempt
from domain.errors import AttemptConflict, ClaimLost, NotFound, NotRetryable, StageNotCurrent
from domain.fail import fail_attempt
from domain.failures import Failure, FailureType, clean_error_message
from domain.held import Claim
from domain.lease import extend_lease
from domain.record import load_chunks_without_embedding, record_embeddings
from domain.retry import retry_document
from domain.statuses import Task, VersionStatus
from domain.tables import attempts, jobs, workers
from domain.workers import note_worker_stopped, register_worker
from tests.domain.indexing import Indexing

LEASE = timedelta(seconds=30)
BOTH = tuple(Task)


@pytest.fixture
def worker(connection: Connection) -> Indexing:
    return Indexing(connection)


@pytest.fixture
def caller(connection: Connection) -> int:
    """The id of a worker that serves no queue."""
    return register_worker(connection, "caller", [], 1)


def take(connection: Connection, caller: int) -> Claim:
    [run] = claim_and_begin(connection, caller, 1, BOTH, LEASE)
    return run.claim


def test_a_claim_that_begins_at_once_has_the_run_lease_and_its_expiry_is_a_failure(
    connection: Connection, worker: Indexing, caller: int
) -> None:
    worker.upload()
    [run] = claim_and_begin(connection, caller, 5, BOTH, LEASE)
    job = connection.execute(select(jobs).where(jobs.c.id == run.claim.job_id)).one()
    attempt = connection.execute(select(attempts).where(attempts.c.id == run.claim.attempt_id)).one()
    assert run.stage == VersionStatus.PARSING
    assert attempt.stage_started_at is not None
    assert attempt.run_by == attempt.worker_id == caller
    assert job.lease_expires_at == run.lease_expires_at
    assert timedelta(0) < job.lease_expires_at - attempt.stage_started_at <= LEASE + timedelta(seconds=5)
    worker.check_commit()


def test_a_claim_that_begins_at_once_takes_jobs_although_no_worker_serves_their_queue(
    connection: Connection, worker: Indexing, caller: int
) -> None:
    note_worker_stopped(connection, worker.worker_id)
    for number in range(4):
        worker.upload(f"{number}.txt")
    assert len(claim_and_begin(connection, caller, 3, [Task.PARSE], LEASE)) == 3
    assert claim_and_begin(connection, caller, 3, [Task.EMBED], LEASE) == []
    assert len(claim_and_begin(connection, caller, 3, BOTH, LEASE)) == 1


def test_a_worker_that_serves_no_queue_makes_no_room_for_claims_of_others(
    connection: Connection, worker: Indexing, caller: int
) -> None:
    note_worker_stopped(connection, worker.worker_id)
    worker.upload()
    with pytest.raises(ValueError, match="not enough values"):
        worker.claim()


@pytest.mark.parametrize("stopped", [True, False], ids=["stopped", "unknown"])
def test_only_a_registered_running_worker_claims(
    connection: Connection, worker: Indexing, caller: int, stopped: bool
) -> None:
    worker.upload()
    if stopped:
        note_worker_stopped(connection, caller)
    with pytest.raises(NotFound):
        claim_and_begin(connection, caller if stopped else caller + 1000, 1, BOTH, LEASE)


def test_claiming_says_that_the_worker_lives(connection: Connection, caller: int) -> None:
    seen = select(workers.c.last_seen_at).where(workers.c.id == caller)
    before = connection.execute(seen).scalar_one()
    claim_and_begin(connection, caller, 1, BOTH, LEASE)
    assert connection.execute(seen).scalar_one() > before


def test_one_attempt_goes_through_all_stages_without_a_message(
    connection: Connection, worker: Indexing, caller: int
) -> None:
    worker.upload()
    claim = take(connection, caller)
    worker.parse(claim, ["one ", "two"])
    worker.chunk(claim, ["one ", "two"])
    run = go_on(connection, claim, LEASE)
    worker.check_commit()
    assert (run.stage, run.attempt_no) == (VersionStatus.EMBEDDING, 1)
    missing = load_chunks_without_embedding(connection, run.version_id)
    assert record_embeddings(connection, claim, [chunk.id for chunk in missing], [[1.0, 0, 0]] * 2)
    assert complete_attempt(connection, claim).current
    worker.check_commit()


def test_going_on_with_a_stage_that_has_begun_changes_nothing(
    connection: Connection, worker: Indexing, caller: int
) -> None:
    worker.upload()
    claim = take(connection, caller)
    before = connection.execute(select(attempts.c.stage_started_at)).scalar_one()
    run = go_on(connection, claim, LEASE)
    assert connection.execute(select(attempts.c.stage_started_at)).scalar_one() == before
    assert run.stage == VersionStatus.PARSING


def test_the_same_output_again_changes_nothing_and_another_is_refused(
    connection: Connection, worker: Indexing, caller: int
) -> None:
    worker.upload()
    claim = take(connection, caller)
    worker.parse(claim, ["one ", "two"])
    worker.parse(claim, ["one ", "two"])
    with pytest.raises(StageNotCurrent, match="another text"):
        worker.parse(claim, ["three"])
    worker.chunk(claim, ["one ", "two"])
    go_on(connection, claim, LEASE)
    worker.chunk(claim, ["one ", "two"])
    worker.parse(claim, ["one ", "two"])
    with pytest.raises(StageNotCurrent, match="other chunks"):
        worker.chunk(claim, ["one two"])
    worker.check_commit()


def test_output_of_a_stage_that_has_not_come_is_refused(connection: Connection, worker: Indexing, caller: int) -> None:
    worker.upload()
    claim = take(connection, caller)
    with pytest.raises(StageNotCurrent, match="no text yet"):
        worker.chunk(claim, ["one"])
    with pytest.raises(StageNotCurrent, match="no chunks yet"):
        record_embeddings(connection, claim, [1], [[1.0, 0, 0]])


def test_the_last_embeddings_again_say_again_that_all_are_there(
    connection: Connection, worker: Indexing, caller: int
) -> None:
    worker.upload()
    claimed = worker.bring_to(VersionStatus.EMBEDDING)
    ids = [chunk.id for chunk in load_chunks_without_embedding(connection, claimed.version_id)]
    vectors = [[1.0, 0, 0]] * len(ids)
    assert record_embeddings(connection, claimed.claim, ids, vectors)
    assert record_embeddings(connection, claimed.claim, ids, vectors)


def test_one_lease_is_extended_and_never_shortened(connection: Connection, worker: Indexing, caller: int) -> None:
    worker.upload()
    claim = take(connection, caller)
    later = extend_lease(connection, claim, timedelta(minutes=5))
    assert extend_lease(connection, claim, timedelta(seconds=1)) == later


def test_a_lease_is_extended_only_by_its_claim_and_while_it_lasts(
    connection: Connection, worker: Indexing, caller: int
) -> None:
    worker.upload()
    claim = take(connection, caller)
    with pytest.raises(ClaimLost, match="holds it"):
        extend_lease(connection, replace(claim, worker_id=worker.worker_id), LEASE)
    fail_attempt(connection, claim, Failure(FailureType.STORAGE_UNAVAILABLE, "away"))
    with pytest.raises(AttemptConflict):
        extend_lease(connection, claim, LEASE)


def test_the_newest_version_of_an_owners_document_is_retried(connection: Connection, worker: Indexing) -> None:
    uploaded = worker.upload()
    worker.fail(worker.bring_to(VersionStatus.PARSING), FailureType.DOCUMENT_CONTENT_INVALID)
    with pytest.raises(NotFound):
        retry_document(connection, uploaded.document_id, "bob")
    retried = retry_document(connection, uploaded.document_id, "ann")
    assert (retried.version_id, retried.document_id) == (uploaded.version_id, uploaded.document_id)
    assert retried.job_id != uploaded.job_id
    with pytest.raises(NotRetryable):
        retry_document(connection, uploaded.document_id, "ann")
    worker.check_commit()


@pytest.mark.parametrize(
    "text", ["a." * 5_000_000, "x" * 10_000_000, "\x00" * 10_000_000, "bearer " * 1_000_000, "&x-amz-" * 1_000_000]
)
def test_a_message_of_ten_megabytes_is_cleaned_in_a_moment(text: str) -> None:
    cleaned = clean_error_message(text)
    assert 8_000 < len(cleaned.encode()) <= 8_192
    assert clean_error_message(cleaned) == cleaned


def test_no_half_secret_is_left_where_a_long_message_is_cut() -> None:
    secret = "https://user:hunter2@host/"
    filler = " https://a:b@c" * 3_000  # cleaning shortens it, and brings the cut nearer
    for shift in range(60):
        cleaned = clean_error_message("x" * shift + filler + f" {secret}" * 2_000)
        assert "hunter2" not in cleaned
