from datetime import datetime

import pytest
from sqlalchemy import Connection, func, select, text

from domain.cancel import cancel_document
from domain.delete import delete_document
from domain.errors import InvalidRequest, NotFound
from domain.failures import FailureType
from domain.progress import JobState, VersionProgress
from domain.release import release_attempt
from domain.retry import retry_version
from domain.statuses import DocumentStatus, Task, VersionStatus
from domain.tables import TIME, events
from domain.views import DocumentView, document_view, list_documents
from tests.domain.indexing import Indexing
from tests.domain.statements import executed, plan


@pytest.fixture
def indexing(connection: Connection) -> Indexing:
    return Indexing(connection)


def now(connection: Connection) -> datetime:
    return connection.execute(select(func.clock_timestamp(type_=TIME))).scalar_one()


def being_built(connection: Connection, document_id: int) -> VersionProgress:
    found = document_view(connection, document_id).being_built
    assert found is not None
    return found


def stopped(connection: Connection, document_id: int) -> VersionProgress:
    found = document_view(connection, document_id).stopped
    assert found is not None
    return found


def test_a_document_that_nobody_works_on_says_since_when_it_waits(indexing: Indexing) -> None:
    before = now(indexing.connection)
    uploaded = indexing.upload()
    view = document_view(indexing.connection, uploaded.document_id)
    assert (view.owner_id, view.name, view.status, view.searchable, view.stopped, view.stage_times) == (
        "ann",
        "report.txt",
        DocumentStatus.PENDING,
        None,
        None,
        (),
    )
    found = view.being_built
    assert found is not None
    assert found.queued_since is not None
    assert before < found.queued_since < now(indexing.connection)
    assert found == VersionProgress(
        version_id=uploaded.version_id,
        version_no=1,
        status=VersionStatus.UPLOADED,
        stage=VersionStatus.UPLOADED,
        task=Task.PARSE,
        job_id=uploaded.job_id or 0,
        state=JobState.WAITING,
        attempt=1,
        max_attempts=4,
        chunks_embedded=None,
        chunks_total=None,
        queued_since=found.queued_since,
        next_retry_at=None,
        worker_name=None,
        stage_started_at=None,
        last_error=None,
    )


def test_a_claimed_document_waits_until_its_stage_begins_and_then_names_who_runs_it(indexing: Indexing) -> None:
    uploaded = indexing.upload()
    claimed = indexing.claim()
    waiting = being_built(indexing.connection, uploaded.document_id)
    assert (waiting.state, waiting.stage, waiting.worker_name) == (JobState.WAITING, VersionStatus.PARSING, None)

    indexing.begin(claimed)
    running = being_built(indexing.connection, uploaded.document_id)
    assert (running.state, running.worker_name, running.queued_since) == (JobState.RUNNING, "worker-1", None)
    assert running.stage_started_at is not None


def test_the_second_stage_of_a_run_began_when_the_first_ended(indexing: Indexing) -> None:
    uploaded = indexing.upload()
    claimed = indexing.bring_to(VersionStatus.PARSING)
    parsing = being_built(indexing.connection, uploaded.document_id)
    indexing.parse(claimed.claim, ["text"])
    chunking = document_view(indexing.connection, uploaded.document_id)
    assert chunking.being_built is not None
    assert chunking.being_built.stage_started_at == chunking.stage_times[0].finished_at
    assert chunking.being_built.stage_started_at > (parsing.stage_started_at or now(indexing.connection))


def test_the_number_of_chunks_is_unknown_and_not_zero_until_the_text_is_chunked(indexing: Indexing) -> None:
    uploaded = indexing.upload()

    def progress() -> tuple[int | None, int | None]:
        found = being_built(indexing.connection, uploaded.document_id)
        return found.chunks_embedded, found.chunks_total

    claimed = indexing.bring_to(VersionStatus.CHUNKING, ["one ", "two ", "three"])
    assert progress() == (None, None)
    indexing.chunk(claimed.claim, ["one ", "two ", "three"])
    assert progress() == (0, 3)
    indexing.begin(claimed, Task.EMBED)
    indexing.embed(claimed, most=2)
    assert progress() == (2, 3)
    indexing.embed(claimed)
    assert progress() == (3, 3)


def test_a_document_to_be_retried_says_when_which_attempt_and_why_in_two_languages(indexing: Indexing) -> None:
    uploaded = indexing.upload()
    failed = indexing.fail(indexing.bring_to(VersionStatus.PARSING), reason="SOURCE_CHANGED")
    found = being_built(indexing.connection, uploaded.document_id)
    assert (found.state, found.attempt, found.max_attempts) == (JobState.RETRY_LATER, 2, 4)
    assert found.next_retry_at == failed.next_retry_at
    assert (found.stage, found.queued_since, found.worker_name) == (VersionStatus.PARSING, None, None)
    error = found.last_error
    assert error is not None
    assert (error.failure_type, error.failure_reason, error.error_message, error.failed_at) == (
        "STORAGE_UNAVAILABLE",
        "SOURCE_CHANGED",
        "the store did not answer",
        failed.failed_at,
    )
    assert error.explanation.english.startswith("The original file changed")
    assert error.explanation.korean.startswith("원본 파일이")


def test_a_released_attempt_counts_for_nothing(indexing: Indexing) -> None:
    uploaded = indexing.upload()
    before_release = now(indexing.connection)
    release_attempt(indexing.connection, indexing.bring_to(VersionStatus.PARSING).claim)
    found = being_built(indexing.connection, uploaded.document_id)
    assert (found.state, found.attempt, found.max_attempts) == (JobState.WAITING, 1, 4)
    assert found.queued_since is not None
    assert found.queued_since > before_release


def test_the_old_version_is_searchable_while_the_new_one_is_built(indexing: Indexing) -> None:
    first = indexing.index(content="1")
    second = indexing.upload(content="2")
    indexing.bring_to(VersionStatus.EMBEDDING)
    view = document_view(indexing.connection, first.document_id)
    assert view.status == DocumentStatus.INDEXED
    assert view.searchable is not None
    assert (view.searchable.version_id, view.searchable.version_no, view.searchable.chunk_count) == (
        first.version_id,
        1,
        2,
    )
    assert view.being_built is not None
    assert (view.being_built.version_id, view.being_built.version_no) == (second.version_id, 2)
    assert [time.stage for time in view.stage_times] == [VersionStatus.PARSING, VersionStatus.CHUNKING]


def test_of_two_versions_being_built_the_newest_is_shown(indexing: Indexing) -> None:
    indexing.upload(content="1")
    indexing.bring_to(VersionStatus.PARSING)
    second = indexing.upload(content="2")
    assert being_built(indexing.connection, second.document_id).version_no == 2


def test_a_failed_new_version_is_shown_as_stopped_beside_the_searchable_one(indexing: Indexing) -> None:
    first = indexing.index(content="1")
    indexing.upload(content="2")
    indexing.fail(indexing.bring_to(VersionStatus.PARSING), FailureType.DOCUMENT_CONTENT_INVALID, "PASSWORD_REQUIRED")
    view = document_view(indexing.connection, first.document_id)
    assert (view.status, view.being_built) == (DocumentStatus.INDEXED, None)
    assert view.searchable is not None
    assert view.stopped is not None
    assert (view.stopped.version_no, view.stopped.status, view.stopped.stage) == (
        2,
        VersionStatus.FAILED,
        VersionStatus.PARSING,
    )
    assert (view.stopped.state, view.stopped.attempt, view.stopped.max_attempts) == (None, 1, 4)


def test_four_failures_stop_a_document_at_attempt_four_of_four(indexing: Indexing) -> None:
    indexing.retry_at_once()
    uploaded = indexing.upload()
    for _ in range(4):
        indexing.fail(indexing.bring_to(VersionStatus.PARSING))
    found = stopped(indexing.connection, uploaded.document_id)
    assert (found.attempt, found.max_attempts, found.next_retry_at) == (4, 4, None)


def test_a_manual_retry_queues_a_job_and_keeps_the_last_error_until_the_version_is_indexed(
    indexing: Indexing,
) -> None:
    uploaded = indexing.upload()
    indexing.fail(indexing.bring_to(VersionStatus.PARSING), FailureType.DOCUMENT_CONTENT_INVALID, "CORRUPT")
    job_id = retry_version(indexing.connection, uploaded.version_id)
    found = being_built(indexing.connection, uploaded.document_id)
    assert (found.job_id, found.state, found.attempt) == (job_id, JobState.WAITING, 1)
    assert found.last_error is not None
    assert found.last_error.failure_reason == "CORRUPT"

    indexing.bring_to(VersionStatus.INDEXED)
    view = document_view(indexing.connection, uploaded.document_id)
    assert (view.being_built, view.stopped) == (None, None)


def test_a_cancelled_document_is_shown_as_stopped_where_it_was(indexing: Indexing) -> None:
    uploaded = indexing.upload()
    indexing.bring_to(VersionStatus.EMBEDDING)
    cancel_document(indexing.connection, uploaded.document_id)
    found = stopped(indexing.connection, uploaded.document_id)
    assert (found.status, found.stage, found.state, found.last_error) == (
        VersionStatus.CANCELLED,
        VersionStatus.EMBEDDING,
        None,
        None,
    )


def test_an_indexed_document_tells_how_long_each_stage_took_without_the_waits_for_retries(
    indexing: Indexing, connection: Connection
) -> None:
    uploaded = indexing.upload()
    indexing.retry_at_once()
    indexing.fail(indexing.bring_to(VersionStatus.EMBEDDING))
    connection.execute(text("SELECT pg_sleep(0.2)"))
    indexing.bring_to(VersionStatus.INDEXED)
    view = document_view(connection, uploaded.document_id)
    assert [time.stage for time in view.stage_times] == [
        VersionStatus.PARSING,
        VersionStatus.CHUNKING,
        VersionStatus.EMBEDDING,
        VersionStatus.STORING,
    ]
    finished = connection.execute(
        select(events.c.created_at)
        .where(events.c.document_id == uploaded.document_id, events.c.type.in_(["EMBEDDING_COMPLETED", "INDEXED"]))
        .order_by(events.c.id)
    ).scalars()
    assert [time.finished_at for time in view.stage_times[2:]] == list(finished)
    assert all(time.elapsed.total_seconds() > 0 for time in view.stage_times)
    claimed_again = connection.execute(
        select(func.max(events.c.created_at)).where(events.c.type == "CLAIMED")
    ).scalar_one()
    assert view.stage_times[2].elapsed == view.stage_times[2].finished_at - claimed_again


@pytest.mark.parametrize("owner_id", [None, "ann", "bob"])
def test_an_unknown_document_is_not_found(connection: Connection, owner_id: str | None) -> None:
    with pytest.raises(NotFound, match="document 999999999 does not exist"):
        document_view(connection, 999_999_999, owner_id)


def test_another_owners_document_is_not_found(indexing: Indexing) -> None:
    uploaded = indexing.upload(owner_id="ann")
    assert document_view(indexing.connection, uploaded.document_id, "ann").owner_id == "ann"
    with pytest.raises(NotFound):
        document_view(indexing.connection, uploaded.document_id, "bob")


def test_a_deleted_document_is_gone_for_its_owner_and_seen_by_the_operator(indexing: Indexing) -> None:
    indexed = indexing.index()
    delete_document(indexing.connection, indexed.document_id)
    with pytest.raises(NotFound):
        document_view(indexing.connection, indexed.document_id, "ann")
    view = document_view(indexing.connection, indexed.document_id)
    assert (view.status, view.searchable, view.being_built) == (DocumentStatus.DELETED, None, None)


def names(page: list[DocumentView]) -> list[str]:
    return [view.name for view in page]


def test_the_list_shows_the_owners_documents_the_newest_first_page_by_page(indexing: Indexing) -> None:
    for name in ("1", "2", "3", "4", "5"):
        indexing.upload(name)
    indexing.upload("of bob", owner_id="bob")
    first = list_documents(indexing.connection, "ann", limit=2)
    second = list_documents(indexing.connection, "ann", limit=2, after=first[-1].document_id)
    third = list_documents(indexing.connection, "ann", limit=2, after=second[-1].document_id)
    assert [names(first), names(second), names(third)] == [["5", "4"], ["3", "2"], ["1"]]
    assert list_documents(indexing.connection, "ann", limit=2, after=third[-1].document_id) == []
    assert names(list_documents(indexing.connection, None, limit=2)) == ["of bob", "5"]


def test_the_list_leaves_deleted_documents_out_unless_they_are_asked_for(indexing: Indexing) -> None:
    indexing.index("kept")
    deleted = indexing.upload("deleted")
    delete_document(indexing.connection, deleted.document_id)
    assert names(list_documents(indexing.connection, "ann")) == ["kept"]
    assert names(list_documents(indexing.connection, "ann", status=DocumentStatus.DELETED)) == ["deleted"]
    assert names(list_documents(indexing.connection, "ann", status=DocumentStatus.INDEXED)) == ["kept"]
    assert list_documents(indexing.connection, "ann", status=DocumentStatus.FAILED) == []


@pytest.mark.parametrize("limit", [0, -1, 1001])
def test_a_page_has_1_to_1000_documents(connection: Connection, limit: int) -> None:
    with pytest.raises(InvalidRequest, match="limit must be from 1 to 1000"):
        list_documents(connection, limit=limit)


def test_a_page_is_one_statement_and_says_of_each_document_what_its_own_view_says(indexing: Indexing) -> None:
    indexing.index("indexed")
    indexing.upload("waiting")
    indexing.upload("failed")
    indexing.bring_to(VersionStatus.CHUNKING)
    indexing.fail(indexing.bring_to(VersionStatus.PARSING), FailureType.DOCUMENT_CONTENT_INVALID)
    with executed(indexing.connection) as statements:
        page = list_documents(indexing.connection, "ann")
    assert len(statements) == 1
    assert page == [document_view(indexing.connection, view.document_id) for view in page]
    assert len(page) == 3


def test_a_page_reads_no_whole_table(indexing: Indexing) -> None:
    indexing.upload()
    # So that a scan of a whole table in the plan shows that there is no index to use.
    indexing.connection.execute(text("SET LOCAL enable_seqscan = off"))
    with executed(indexing.connection) as statements:
        list_documents(indexing.connection, "ann")
        list_documents(indexing.connection, after=1)
        document_view(indexing.connection, being_listed(indexing), "ann")
    for statement in statements:
        assert "Seq Scan" not in plan(indexing.connection, statement)


def being_listed(indexing: Indexing) -> int:
    return list_documents(indexing.connection, limit=1)[0].document_id
