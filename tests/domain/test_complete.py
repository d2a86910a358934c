"""Completing an attempt: the version is searched from now on, its predecessor no more."""

from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import Connection

from domain.begin import begin_stage
from domain.cancel import cancel_document
from domain.complete import AttemptCompleted, complete_attempt
from domain.delete import delete_document
from domain.errors import AttemptConflict, AttemptNotCurrent, ClaimLost, NotFound, VersionIncomplete
from domain.fail import fail_attempt
from domain.failures import Failure, FailureType
from domain.release import release_attempt
from domain.statuses import Task, VersionStatus
from tests.domain.indexing import Indexing
from tests.domain.rows import count, dump, embeddings, events, last_event, one, other_token, row, statuses


def test_a_completion_ends_attempt_job_and_version_and_points_the_document_at_it(
    indexing: Indexing, connection: Connection
) -> None:
    uploaded = indexing.upload()
    claimed = indexing.bring_to(VersionStatus.STORING)
    before = last_event(connection)
    completed = complete_attempt(connection, claimed.claim)

    version = row(connection, "document_versions", uploaded.version_id)
    job = row(connection, "embedding_jobs", claimed.claim.job_id)
    attempt = row(connection, "indexing_attempts", claimed.claim.attempt_id)
    document = row(connection, "documents", uploaded.document_id)
    assert completed == AttemptCompleted(
        job_id=job.id,
        attempt_id=attempt.id,
        attempt_no=1,
        document_id=document.id,
        version_id=version.id,
        version_no=1,
        current=True,
        indexed_at=version.indexed_at,
    )
    assert (attempt.status, job.status, version.status, document.status) == ("INDEXED",) * 4
    assert (job.worker_id, job.claim_token, job.lease_expires_at) == (None, None, None)
    assert document.current_version_id == version.id
    assert embeddings(connection, version.id) == {"ACTIVE": 2}
    assert events(connection, document.id, before) == ["INDEXED", "CURRENT_CHANGED", "DOCUMENT_INDEXED"]
    assert one(connection, "SELECT type FROM notifications") == "DOCUMENT_INDEXED"
    indexing.check_commit()


def test_a_completion_that_comes_again_returns_the_stored_result_and_writes_nothing(
    indexing: Indexing, connection: Connection
) -> None:
    indexing.upload()
    claimed = indexing.bring_to(VersionStatus.STORING)
    completed = complete_attempt(connection, claimed.claim)
    before = dump(connection)
    for _ in range(5):
        assert complete_attempt(connection, claimed.claim) == completed
    assert dump(connection) == before


def test_a_completion_that_comes_again_says_the_same_after_its_version_was_superseded(
    indexing: Indexing, connection: Connection
) -> None:
    indexing.upload()
    claimed = indexing.bring_to(VersionStatus.STORING)
    completed = complete_attempt(connection, claimed.claim)
    indexing.index(content="2")
    assert complete_attempt(connection, claimed.claim) == completed
    delete_document(connection, claimed.document_id)
    assert complete_attempt(connection, claimed.claim) == completed


def test_a_newer_version_supersedes_the_current_one(indexing: Indexing, connection: Connection) -> None:
    first = indexing.index()
    second = indexing.upload(content="2")
    claimed = indexing.bring_to(VersionStatus.STORING)
    before = last_event(connection)
    assert complete_attempt(connection, claimed.claim).current
    assert one(connection, "SELECT current_version_id FROM documents") == second.version_id
    assert embeddings(connection, first.version_id) == {"STALE": 2}
    assert embeddings(connection, second.version_id) == {"ACTIVE": 2}
    assert events(connection, first.document_id, before) == ["INDEXED", "EMBEDDINGS_STALE", "CURRENT_CHANGED"]
    assert one(connection, "SELECT count(*) FROM notifications WHERE type = 'DOCUMENT_INDEXED'") == 2
    indexing.check_commit()


def test_a_version_older_than_the_current_one_completes_without_being_searched(
    indexing: Indexing, connection: Connection
) -> None:
    older = indexing.upload()
    late = indexing.bring_to(VersionStatus.STORING)
    newer = indexing.index(content="2")
    before = last_event(connection)
    completed = complete_attempt(connection, late.claim)
    assert not completed.current
    assert completed.version_no == 1
    assert complete_attempt(connection, late.claim) == completed
    assert one(connection, "SELECT current_version_id FROM documents") == newer.version_id
    assert statuses(connection, older.version_id) == ("INDEXED", "INDEXED", "INDEXED")
    assert embeddings(connection, older.version_id) == {"STALE": 2}
    assert embeddings(connection, newer.version_id) == {"ACTIVE": 2}
    assert events(connection, older.document_id, before) == ["INDEXED", "EMBEDDINGS_STALE"]
    assert count(connection, "notifications") == 1, "what nobody will find is no news"
    indexing.check_commit()


@pytest.mark.parametrize("stage", [VersionStatus.PARSING, VersionStatus.CHUNKING, VersionStatus.EMBEDDING])
def test_a_version_without_all_its_embeddings_is_incomplete_and_nothing_is_written(
    indexing: Indexing, connection: Connection, stage: VersionStatus
) -> None:
    indexing.upload()
    claimed = indexing.bring_to(stage)
    if stage == VersionStatus.EMBEDDING:
        indexing.embed(claimed, most=1)
    before = dump(connection)
    of = {"PARSING": "0 of 0", "CHUNKING": "0 of 0", "EMBEDDING": "1 of 2"}[stage]
    with pytest.raises(VersionIncomplete, match=f"is {stage} with {of} chunks embedded"):
        complete_attempt(connection, claimed.claim)
    assert dump(connection) == before
    indexing.check_commit()


def test_errors_are_told_in_the_order_in_which_they_are_found(indexing: Indexing, connection: Connection) -> None:
    indexing.upload()
    claim = indexing.bring_to(VersionStatus.EMBEDDING).claim  # also incomplete, which is told last
    wrong = replace(claim, token=other_token())
    with pytest.raises(NotFound, match="job"):
        complete_attempt(connection, replace(wrong, job_id=claim.job_id + 1))
    with pytest.raises(NotFound, match="attempt"):
        complete_attempt(connection, replace(wrong, attempt_id=claim.attempt_id + 1))
    for other in (wrong, replace(claim, worker_id=claim.worker_id + 1)):
        with pytest.raises(ClaimLost) as lost:
            complete_attempt(connection, other)
        assert lost.value.reason == "mismatch"
    release_attempt(connection, claim)
    again = indexing.claim()
    begin_stage(connection, again.claim, Task.EMBED, indexing.worker_id, timedelta(microseconds=1))
    with pytest.raises(ClaimLost) as lost:
        complete_attempt(connection, replace(again.claim, token=other_token()))
    assert lost.value.reason == "mismatch"
    with pytest.raises(ClaimLost) as lost:
        complete_attempt(connection, again.claim)
    assert lost.value.reason == "expired"
    with pytest.raises(AttemptNotCurrent):
        complete_attempt(connection, wrong)


def test_the_attempt_of_another_job_does_not_exist(indexing: Indexing, connection: Connection) -> None:
    indexing.upload("a")
    indexing.upload("b")
    one_of = indexing.bring_to(VersionStatus.STORING)
    other = indexing.bring_to(VersionStatus.STORING)
    with pytest.raises(NotFound, match="attempt"):
        complete_attempt(connection, replace(one_of.claim, attempt_id=other.claim.attempt_id))


def test_an_attempt_that_ended_another_way_is_not_completed(indexing: Indexing, connection: Connection) -> None:
    failed, cancelled = indexing.upload("a"), indexing.upload("b")
    first = indexing.bring_to(VersionStatus.STORING)
    second = indexing.bring_to(VersionStatus.STORING)
    indexing.fail(first, FailureType.DOCUMENT_CONTENT_INVALID)
    cancel_document(connection, cancelled.document_id)
    with pytest.raises(AttemptConflict, match="FAILED"):
        complete_attempt(connection, first.claim)
    with pytest.raises(AttemptNotCurrent, match="CANCELLED"):
        complete_attempt(connection, second.claim)
    assert statuses(connection, failed.version_id) == ("FAILED", "FAILED", "FAILED")


def test_only_the_worker_that_completed_it_hears_the_result_again(indexing: Indexing, connection: Connection) -> None:
    indexing.upload()
    claim = indexing.bring_to(VersionStatus.INDEXED).claim
    for other in (replace(claim, token=other_token()), replace(claim, worker_id=claim.worker_id + 1)):
        with pytest.raises(AttemptConflict, match="INDEXED"):
            complete_attempt(connection, other)
    with pytest.raises(AttemptConflict):
        fail_attempt(connection, claim, Failure(FailureType.WORKER_INTERNAL_ERROR, "late"))


def test_a_version_that_waited_in_storing_is_completed_by_the_next_claim(
    indexing: Indexing, connection: Connection
) -> None:
    indexing.retry_at_once()
    indexing.upload()
    indexing.fail(indexing.bring_to(VersionStatus.STORING))
    claimed = indexing.bring_to(VersionStatus.INDEXED)
    assert (claimed.stage, claimed.attempt_no) == (VersionStatus.STORING, 2)
    assert statuses(connection, claimed.version_id) == ("INDEXED", "INDEXED", "INDEXED")
    indexing.check_commit()
