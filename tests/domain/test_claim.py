"""Claiming due jobs: which, in what order, and what a claim is."""

from datetime import timedelta

import pytest
from sqlalchemy import Connection

from domain.claim import DISPATCH_LEASE, claim_jobs
from domain.errors import NotFound
from domain.failures import FailureType
from domain.release import release_attempt
from domain.statuses import Task, VersionStatus
from domain.workers import register_worker
from tests.domain.indexing import Indexing
from tests.domain.rows import events, one, row

BOTH = list(Task)


def test_a_claim_takes_the_jobs_that_have_been_due_longest_in_their_order(indexing: Indexing) -> None:
    uploaded = [indexing.upload(f"{number}.txt") for number in range(5)]
    claimed = claim_jobs(indexing.connection, indexing.worker_id, 3, BOTH)
    assert [job.version_id for job in claimed] == [upload.version_id for upload in uploaded[:3]]
    claimed = claim_jobs(indexing.connection, indexing.worker_id, 3, BOTH)
    assert [job.version_id for job in claimed] == [upload.version_id for upload in uploaded[3:]]


def test_a_claim_says_all_that_its_message_needs(indexing: Indexing) -> None:
    uploaded = indexing.upload(max_retry_count=5)
    [job] = claim_jobs(indexing.connection, indexing.worker_id, 10, BOTH)
    assert (job.task, job.stage) == (Task.PARSE, VersionStatus.PARSING)
    assert (job.attempt_no, job.retry_count, job.max_retry_count) == (1, 0, 5)
    assert (job.document_id, job.version_id) == (uploaded.document_id, uploaded.version_id)
    assert (job.claim.job_id, job.claim.worker_id) == (uploaded.job_id, indexing.worker_id)


def test_a_claim_starts_an_attempt_with_its_worker_and_token_and_the_first_one_starts_parsing(
    indexing: Indexing, connection: Connection
) -> None:
    uploaded = indexing.upload()
    claimed = indexing.claim()
    job = row(connection, "embedding_jobs", claimed.claim.job_id)
    attempt = row(connection, "indexing_attempts", claimed.claim.attempt_id)
    assert (job.status, job.attempt_no, job.retry_count, job.next_retry_at) == ("PROCESSING", 1, 0, None)
    assert (job.worker_id, job.claim_token) == (claimed.claim.worker_id, claimed.claim.token)
    assert (attempt.job_id, attempt.attempt_no, attempt.status) == (job.id, 1, "STARTED")
    assert (attempt.worker_id, attempt.claim_token) == (claimed.claim.worker_id, claimed.claim.token)
    assert (attempt.run_by, attempt.stage_started_at, attempt.finished_at) == (None, None, None)
    assert row(connection, "document_versions", uploaded.version_id).status == "PARSING"
    assert events(connection, uploaded.document_id) == ["DOCUMENT_PENDING", "FILE_UPLOADED", "CLAIMED"]
    indexing.check_commit()


def test_a_claim_has_a_dispatch_lease_of_ten_minutes(indexing: Indexing, connection: Connection) -> None:
    indexing.upload()
    indexing.claim()
    left = one(connection, "SELECT lease_expires_at - clock_timestamp() FROM embedding_jobs")
    assert timedelta(minutes=10) == DISPATCH_LEASE
    assert DISPATCH_LEASE - timedelta(seconds=20) < left <= DISPATCH_LEASE


def test_every_claim_has_a_new_token_and_the_next_attempt_number_also_for_the_same_worker(indexing: Indexing) -> None:
    indexing.upload()
    claims = []
    for _ in range(5):
        claimed = indexing.claim()
        claims.append(claimed)
        release_attempt(indexing.connection, claimed.claim)
    assert [claimed.attempt_no for claimed in claims] == [1, 2, 3, 4, 5]
    assert len({claimed.claim.token for claimed in claims}) == 5
    assert len({claimed.claim.attempt_id for claimed in claims}) == 5
    indexing.check_commit()


def test_jobs_claimed_together_have_a_token_each(indexing: Indexing) -> None:
    for number in range(20):
        indexing.upload(f"{number}.txt")
    claimed = claim_jobs(indexing.connection, indexing.worker_id, 20, BOTH)
    assert len({job.claim.token for job in claimed}) == len(claimed) == 20


def test_a_job_that_is_due_later_is_not_claimed(indexing: Indexing) -> None:
    indexing.upload()
    indexing.fail(indexing.bring_to(VersionStatus.PARSING))
    assert claim_jobs(indexing.connection, indexing.worker_id, 10, BOTH) == []


def test_a_retry_that_is_due_comes_after_what_has_been_due_longer(indexing: Indexing) -> None:
    indexing.retry_at_once()
    failed = indexing.upload("failed.txt")
    claimed = indexing.bring_to(VersionStatus.PARSING)
    waiting = indexing.upload("waiting.txt")
    indexing.fail(claimed)
    claims = claim_jobs(indexing.connection, indexing.worker_id, 10, BOTH)
    assert [job.version_id for job in claims] == [waiting.version_id, failed.version_id]
    assert [(job.attempt_no, job.retry_count) for job in claims] == [(1, 0), (2, 1)]


def test_a_claimed_job_is_not_claimed_again(indexing: Indexing) -> None:
    indexing.upload()
    indexing.claim()
    assert claim_jobs(indexing.connection, indexing.worker_id, 10, BOTH) == []


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_of_nothing_claims_nothing(indexing: Indexing, limit: int) -> None:
    indexing.upload()
    assert claim_jobs(indexing.connection, indexing.worker_id, limit, BOTH) == []


def test_only_the_tasks_asked_for_are_claimed(indexing: Indexing) -> None:
    indexing.upload("parse.txt")
    release_attempt(indexing.connection, indexing.bring_to(VersionStatus.EMBEDDING).claim)
    indexing.upload("embed.txt")
    assert claim_jobs(indexing.connection, indexing.worker_id, 10, []) == []
    [embed] = claim_jobs(indexing.connection, indexing.worker_id, 10, [Task.EMBED])
    assert (embed.task, embed.stage) == (Task.EMBED, VersionStatus.EMBEDDING)
    [parse] = claim_jobs(indexing.connection, indexing.worker_id, 10, [Task.PARSE])
    assert (parse.task, parse.stage) == (Task.PARSE, VersionStatus.PARSING)


def test_what_waits_to_be_embedded_is_claimed_before_what_waits_to_be_parsed(indexing: Indexing) -> None:
    indexing.upload("first.txt")
    claimed = indexing.bring_to(VersionStatus.EMBEDDING)
    indexing.upload("second.txt")
    release_attempt(indexing.connection, claimed.claim)
    claims = claim_jobs(indexing.connection, indexing.worker_id, 10, [Task.PARSE, Task.EMBED, Task.PARSE])
    assert [job.task for job in claims] == [Task.EMBED, Task.PARSE]


@pytest.mark.parametrize(
    "stage", [VersionStatus.PARSING, VersionStatus.CHUNKING, VersionStatus.EMBEDDING, VersionStatus.STORING]
)
def test_the_claim_after_a_failure_goes_on_at_the_stage_that_failed(indexing: Indexing, stage: VersionStatus) -> None:
    indexing.retry_at_once()
    indexing.upload()
    indexing.fail(indexing.bring_to(stage), FailureType.STORAGE_UNAVAILABLE)
    assert indexing.claim().stage == stage


def test_a_worker_that_nobody_knows_claims_nothing_and_puts_nothing_off(
    indexing: Indexing, connection: Connection
) -> None:
    uploaded = indexing.upload()
    with pytest.raises(NotFound, match="worker"):
        claim_jobs(connection, indexing.worker_id + 1, 10, BOTH)
    assert one(connection, "SELECT next_retry_at FROM embedding_jobs") is None
    assert indexing.claim().version_id == uploaded.version_id


def test_a_worker_that_starts_again_under_its_name_inherits_no_claim(indexing: Indexing) -> None:
    indexing.upload()
    claimed = indexing.claim()
    again = register_worker(indexing.connection, "worker-1", ["claim", "parse", "embed"], 1)
    assert again != claimed.claim.worker_id
    assert claim_jobs(indexing.connection, again, 10, BOTH) == []
