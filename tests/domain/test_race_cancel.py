"""A cancellation against the work that it ends: whichever comes first, nothing of it is searched or left running."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import text

from domain.cancel import cancel_document
from domain.claim import claim_jobs
from domain.enqueue import Upload, enqueue_document
from domain.errors import AttemptNotCurrent, DocumentBusy, NothingToCancel
from domain.statuses import Task, VersionStatus
from tests.conftest import Connect, WaitUntilBlocked
from tests.domain.indexing import Indexing
from tests.domain.reports import report_of
from tests.domain.rows import column, embeddings, row, statuses

pytestmark = pytest.mark.race


@pytest.mark.parametrize("ending", ["complete", "fail", "record"])
def test_a_cancellation_that_comes_first_leaves_the_attempt_nothing_to_report(
    committed: Indexing,
    connect: Connect,
    background: ThreadPoolExecutor,
    wait_until_blocked: WaitUntilBlocked,
    ending: str,
) -> None:
    uploaded = committed.upload()
    claimed = committed.bring_to(VersionStatus.EMBEDDING if ending == "record" else VersionStatus.STORING)
    committed.connection.commit()
    cancelling, working = connect(), connect()

    cancel_document(cancelling, uploaded.document_id)
    report = background.submit(report_of(ending, working, committed, claimed.version_id), claimed.claim)
    wait_until_blocked(working)
    cancelling.commit()

    with pytest.raises(AttemptNotCurrent):
        report.result(timeout=60)
    working.rollback()
    assert statuses(working, uploaded.version_id) == ("CANCELLED", "CANCELLED", "CANCELLED")
    assert embeddings(working, uploaded.version_id).get("ACTIVE", 0) == 0


@pytest.mark.parametrize("ending", ["complete", "fail"])
def test_a_cancellation_that_waits_for_the_end_of_the_attempt_finds_nothing_to_cancel(
    committed: Indexing,
    connect: Connect,
    background: ThreadPoolExecutor,
    wait_until_blocked: WaitUntilBlocked,
    ending: str,
) -> None:
    uploaded = committed.upload()
    claimed = committed.bring_to(VersionStatus.STORING)
    committed.connection.commit()
    cancelling, working = connect(), connect()

    report_of(ending, working, committed, claimed.version_id)(claimed.claim)
    cancelled = background.submit(cancel_document, cancelling, uploaded.document_id)
    wait_until_blocked(cancelling)
    working.commit()

    with pytest.raises(NothingToCancel):
        cancelled.result(timeout=60)


def test_a_cancellation_that_waits_for_stored_vectors_makes_them_stale(
    committed: Indexing, connect: Connect, background: ThreadPoolExecutor, wait_until_blocked: WaitUntilBlocked
) -> None:
    uploaded = committed.upload()
    claimed = committed.bring_to(VersionStatus.EMBEDDING)
    committed.connection.commit()
    cancelling, working = connect(), connect()

    report_of("record", working, committed, claimed.version_id)(claimed.claim)
    cancelled = background.submit(cancel_document, cancelling, uploaded.document_id)
    wait_until_blocked(cancelling)
    working.commit()

    assert cancelled.result(timeout=60) == [uploaded.job_id]
    cancelling.commit()
    assert embeddings(cancelling, uploaded.version_id) == {"STALE": 2}


def test_a_whole_document_that_keeps_changing_is_busy(
    committed: Indexing,
    connect: Connect,
    background: ThreadPoolExecutor,
    wait_until_blocked: WaitUntilBlocked,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("domain.whole.TRIES", 1)
    first = committed.upload()
    committed.connection.commit()
    uploading, cancelling = connect(), connect()

    enqueue_document(uploading, Upload("ann", "report.txt", "file:///2"), committed.model_id)
    cancelled = background.submit(cancel_document, cancelling, first.document_id)
    wait_until_blocked(cancelling)
    uploading.commit()

    with pytest.raises(DocumentBusy, match="try again"):
        cancelled.result(timeout=60)
    assert column(uploading, "SELECT id FROM embedding_jobs ORDER BY id FOR NO KEY UPDATE SKIP LOCKED") != []


def test_a_cancellation_that_waits_for_a_claim_cancels_its_attempt(
    committed: Indexing, connect: Connect, background: ThreadPoolExecutor, wait_until_blocked: WaitUntilBlocked
) -> None:
    uploaded = committed.upload()
    committed.connection.commit()
    claiming, cancelling = connect(), connect()

    [claimed] = claim_jobs(claiming, committed.worker_id, 1, list(Task))
    cancelled = background.submit(cancel_document, cancelling, uploaded.document_id)
    wait_until_blocked(cancelling)
    claiming.commit()

    assert cancelled.result(timeout=60) == [uploaded.job_id]
    cancelling.commit()
    assert row(cancelling, "indexing_attempts", claimed.claim.attempt_id).status == "CANCELLED"
    assert row(cancelling, "document_versions", uploaded.version_id).stopped_stage == "PARSING"


def test_a_claim_passes_over_a_job_that_is_just_being_cancelled(committed: Indexing, connect: Connect) -> None:
    uploaded = committed.upload()
    committed.connection.commit()
    cancelling, claiming = connect(), connect()
    cancel_document(cancelling, uploaded.document_id)
    claiming.execute(text("SET LOCAL lock_timeout = '1ms'"))
    assert claim_jobs(claiming, committed.worker_id, 10, list(Task)) == []
    claiming.commit()
    cancelling.commit()
    assert claim_jobs(claiming, committed.worker_id, 10, list(Task)) == []
