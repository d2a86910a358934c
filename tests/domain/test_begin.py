"""Beginning a stage: the dispatch lease is traded for the run lease, once per claim."""

from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from domain.begin import Model, StageRun, begin_stage
from domain.cancel import cancel_document
from domain.enqueue import Upload, enqueue_document
from domain.errors import AttemptConflict, AttemptNotCurrent, ClaimLost, NotFound, StageNotDue
from domain.release import release_attempt
from domain.statuses import Task, VersionStatus
from domain.workers import register_worker
from tests.domain.indexing import Indexing
from tests.domain.rows import one, other_token, row

LEASE = timedelta(seconds=30)


def test_a_stage_that_begins_is_told_all_it_needs(indexing: Indexing, connection: Connection) -> None:
    upload = Upload(
        "ann", "보고서.pdf", "s3://b/k", "a" * 64, max_retry_count=2, media_type="application/pdf", size_bytes=9
    )
    enqueued = enqueue_document(connection, upload, indexing.model_id)
    claimed = indexing.claim()
    begun = begin_stage(connection, claimed.claim, Task.PARSE, indexing.worker_id, LEASE)
    assert begun == StageRun(
        claim=claimed.claim,
        document_id=enqueued.document_id,
        version_id=enqueued.version_id,
        owner_id="ann",
        name="보고서.pdf",
        stage=VersionStatus.PARSING,
        storage_uri="s3://b/k",
        content_sha256="a" * 64,
        media_type="application/pdf",
        size_bytes=9,
        model=Model(indexing.model_id, "test:model-3", 3),
        attempt_no=1,
        retry_count=0,
        max_retry_count=2,
        lease_expires_at=row(connection, "embedding_jobs", claimed.claim.job_id).lease_expires_at,
    )


def test_a_stage_that_begins_trades_the_dispatch_lease_for_its_run_lease(
    indexing: Indexing, connection: Connection
) -> None:
    indexing.upload()
    claimed = indexing.claim()
    other = register_worker(connection, "runner", ["parse"], 1)
    begin_stage(connection, claimed.claim, Task.PARSE, other, LEASE)
    left = one(connection, "SELECT lease_expires_at - clock_timestamp() FROM embedding_jobs")
    attempt = row(connection, "indexing_attempts", claimed.claim.attempt_id)
    assert LEASE / 2 < left <= LEASE
    assert (attempt.run_by, attempt.worker_id) == (other, indexing.worker_id)
    assert attempt.stage_started_at >= attempt.started_at
    indexing.check_commit()


@pytest.mark.parametrize("stage", [VersionStatus.CHUNKING, VersionStatus.EMBEDDING, VersionStatus.STORING])
def test_a_stage_resumes_where_the_version_stands(
    indexing: Indexing, connection: Connection, stage: VersionStatus
) -> None:
    indexing.upload()
    release_attempt(connection, indexing.bring_to(stage).claim)
    claimed = indexing.claim()
    assert begin_stage(connection, claimed.claim, claimed.task, indexing.worker_id, LEASE).stage == stage


def test_the_second_message_of_a_claim_begins_nothing(indexing: Indexing, connection: Connection) -> None:
    indexing.upload()
    claimed = indexing.claim()
    begin_stage(connection, claimed.claim, Task.PARSE, indexing.worker_id, LEASE)
    before = row(connection, "indexing_attempts", claimed.claim.attempt_id)
    for _ in range(4):
        with pytest.raises(StageNotDue, match="has begun already"):
            begin_stage(connection, claimed.claim, Task.PARSE, indexing.worker_id, LEASE)
    assert row(connection, "indexing_attempts", claimed.claim.attempt_id) == before


def test_a_stage_of_the_other_task_is_not_begun(indexing: Indexing, connection: Connection) -> None:
    indexing.upload()
    claimed = indexing.claim()
    with pytest.raises(StageNotDue, match="belongs to task parse"):
        begin_stage(connection, claimed.claim, Task.EMBED, indexing.worker_id, LEASE)


def test_parse_begins_nothing_any_more_after_it_handed_over(indexing: Indexing, connection: Connection) -> None:
    indexing.upload()
    claimed = indexing.bring_to(VersionStatus.CHUNKING)
    indexing.chunk(claimed.claim, ["first passage ", "second passage"])
    with pytest.raises(StageNotDue, match="belongs to task embed"):
        begin_stage(connection, claimed.claim, Task.PARSE, indexing.worker_id, LEASE)
    assert begin_stage(connection, claimed.claim, Task.EMBED, indexing.worker_id, LEASE).stage == "EMBEDDING"
    with pytest.raises(StageNotDue, match="has begun already"):
        begin_stage(connection, claimed.claim, Task.EMBED, indexing.worker_id, LEASE)


def test_a_claim_that_does_not_hold_begins_nothing(indexing: Indexing, connection: Connection) -> None:
    uploaded = indexing.upload()
    claimed = indexing.claim()

    def begin(**other: object) -> None:
        claim = replace(claimed.claim, **other)  # type: ignore[arg-type]
        begin_stage(connection, claim, Task.PARSE, indexing.worker_id, LEASE)

    with pytest.raises(NotFound, match="job"):
        begin(job_id=claimed.claim.job_id + 1)
    with pytest.raises(NotFound, match="attempt"):
        begin(attempt_id=claimed.claim.attempt_id + 1)
    for wrong in ({"token": other_token()}, {"worker_id": indexing.worker_id + 1}):
        with pytest.raises(ClaimLost) as lost:
            begin(**wrong)
        assert lost.value.reason == "mismatch"
    cancel_document(connection, uploaded.document_id)
    with pytest.raises(AttemptNotCurrent):
        begin()


def test_an_attempt_that_ended_begins_nothing(indexing: Indexing, connection: Connection) -> None:
    indexing.upload()
    claimed = indexing.bring_to(VersionStatus.INDEXED)
    with pytest.raises(AttemptConflict):
        begin_stage(connection, claimed.claim, Task.EMBED, indexing.worker_id, LEASE)


def test_an_expired_claim_begins_nothing(indexing: Indexing, connection: Connection) -> None:
    indexing.upload()
    claimed = indexing.claim()
    begin_stage(connection, claimed.claim, Task.PARSE, indexing.worker_id, timedelta(microseconds=1))
    with pytest.raises(ClaimLost) as lost:
        begin_stage(connection, claimed.claim, Task.PARSE, indexing.worker_id, LEASE)
    assert lost.value.reason == "expired"


def test_a_runner_that_nobody_knows_begins_nothing(indexing: Indexing, connection: Connection) -> None:
    indexing.upload()
    claimed = indexing.claim()
    with pytest.raises(IntegrityError, match="attempts_runner_known"):
        begin_stage(connection, claimed.claim, Task.PARSE, indexing.worker_id + 1, LEASE)
