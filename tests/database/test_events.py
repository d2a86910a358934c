"""Each change writes its events, exactly those, in its own transaction (rule 18 of the database)."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from sqlalchemy import Connection

from domain.failures import FailureType
from domain.statuses import STAGES, VersionStatus
from tests.conftest import Connect
from tests.database.lifecycle import (
    Indexing,
    add_job,
    cancel,
    claim,
    complete,
    delete,
    fail,
    move_version,
    release,
    retry,
    switch_embeddings,
    to_chunking,
    to_embedding,
    to_storing,
    upload,
)
from tests.database.refusals import commit_checks, one, run
from tests.database.states import version_in

V = VersionStatus


@dataclass
class Written:
    """The events that some statements wrote, in order."""

    events: list[dict[str, Any]] = field(default_factory=list)

    @property
    def types(self) -> list[str]:
        return [event["type"] for event in self.events]

    def detail(self, type_: str) -> dict[str, Any]:
        (detail,) = (event["detail"] for event in self.events if event["type"] == type_)
        assert isinstance(detail, dict)
        return detail


@contextmanager
def written(connection: Connection) -> Iterator[Written]:
    last = one(connection, "SELECT coalesce(max(id), 0) FROM indexing_events")
    result = Written()
    yield result
    rows = run(connection, "SELECT * FROM indexing_events WHERE id > :last ORDER BY id", last=last)
    result.events = [row._asdict() for row in rows]


def test_an_upload_writes_file_uploaded_and_document_pending(connection: Connection) -> None:
    with written(connection) as events:
        made = upload(connection)
    assert events.types == ["DOCUMENT_PENDING", "FILE_UPLOADED"]
    assert events.events[1]["version_id"] == made.version_id
    assert events.detail("FILE_UPLOADED") == {"version_no": 1}


@pytest.mark.parametrize("stage", [V.UPLOADED, *STAGES])
def test_a_claim_writes_claimed_with_the_stage_it_is_for(connection: Connection, stage: VersionStatus) -> None:
    job = version_in(connection, stage)
    if stage != V.UPLOADED:
        release(connection, job)
    with written(connection) as events:
        claimed = claim(connection, job)
    assert events.types == ["CLAIMED"]
    event = events.events[0]
    assert event["stage"] == ("PARSING" if stage == V.UPLOADED else stage)
    assert (event["document_id"], event["version_id"], event["job_id"], event["attempt_id"]) == (
        job.document_id,
        job.version_id,
        job.job_id,
        claimed.attempt_id,
    )
    assert event["detail"] == {"attempt_no": 1 if stage == V.UPLOADED else 2, "worker_id": job.worker_id}


def test_a_release_writes_released(connection: Connection) -> None:
    job = version_in(connection, V.EMBEDDING)
    with written(connection) as events:
        release(connection, job)
    assert events.types == ["RELEASED"]
    assert (events.events[0]["stage"], events.events[0]["attempt_id"]) == ("EMBEDDING", job.attempt_id)


@pytest.mark.parametrize(
    ("stage", "step", "event", "detail"),
    [
        (V.PARSING, to_chunking, "PARSING_COMPLETED", {}),
        (V.CHUNKING, to_embedding, "CHUNKING_COMPLETED", {"chunks": 2}),
        (V.EMBEDDING, to_storing, "EMBEDDING_COMPLETED", {"embeddings": 2}),
    ],
)
def test_a_stage_left_forward_writes_completed(
    connection: Connection,
    stage: VersionStatus,
    step: Callable[[Connection, Indexing], None],
    event: str,
    detail: dict[str, int],
) -> None:
    version = version_in(connection, stage)
    with written(connection) as events:
        step(connection, version)
    assert events.types == [event]
    assert events.events[0]["stage"] == stage
    assert events.events[0]["job_id"] == version.job_id
    assert events.detail(event) == detail


def test_a_first_completion_writes_indexed_and_what_the_document_became(connection: Connection) -> None:
    version = version_in(connection, V.STORING)
    with written(connection) as events:
        complete(connection, version)
    assert events.types == ["INDEXED", "CURRENT_CHANGED", "DOCUMENT_INDEXED"]
    assert events.detail("CURRENT_CHANGED") == {"old": None, "new": version.version_id}


def test_a_later_completion_writes_that_the_pointer_moved_and_what_went_stale(connection: Connection) -> None:
    old = version_in(connection, V.INDEXED)
    new = version_in(connection, V.STORING, document_id=old.document_id)
    with written(connection) as events:
        complete(connection, new)
    assert events.types == ["INDEXED", "EMBEDDINGS_STALE", "CURRENT_CHANGED"]
    assert events.detail("EMBEDDINGS_STALE") == {"count": 2}
    assert events.detail("CURRENT_CHANGED") == {"old": old.version_id, "new": new.version_id}


RE_ENTRY = {
    V.PARSING: "FILE_UPLOADED",
    V.CHUNKING: "PARSING_COMPLETED",
    V.EMBEDDING: "CHUNKING_COMPLETED",
    V.STORING: "EMBEDDING_COMPLETED",
}


@pytest.mark.parametrize("stage", STAGES)
def test_a_failure_that_is_retried_writes_failed_and_retry_with_its_re_entry(
    connection: Connection, stage: VersionStatus
) -> None:
    job = version_in(connection, stage)
    with written(connection) as events:
        fail(connection, job, FailureType.STORAGE_UNAVAILABLE)
    assert events.types == [f"{stage}_FAILED", "RETRY"]
    assert {event["attempt_id"] for event in events.events} == {job.attempt_id}
    assert events.detail(f"{stage}_FAILED")["failure_type"] == "STORAGE_UNAVAILABLE"
    retried = events.detail("RETRY")
    assert (retried["re_entry"], retried["delay_seconds"], retried["retry_count"]) == (RE_ENTRY[stage], 10, 1)
    assert one(
        connection,
        "SELECT next_retry_at = cast(:said AS timestamptz) FROM embedding_jobs WHERE id = :id",
        said=retried["next_retry_at"],
        id=job.job_id,
    )


@pytest.mark.parametrize("stage", STAGES)
def test_a_final_failure_writes_failed_twice_and_what_it_ended(connection: Connection, stage: VersionStatus) -> None:
    job = version_in(connection, stage)
    with written(connection) as events:
        fail(connection, job)
    stale = ["EMBEDDINGS_STALE"] if stage == V.STORING else []
    assert events.types == [f"{stage}_FAILED", "FAILED", *stale, "DOCUMENT_FAILED"]
    assert events.detail("FAILED") == {"retryable": False, "retry_count": 0, "max_retry_count": 3}


@pytest.mark.parametrize("stage", [V.UPLOADED, *STAGES])
def test_a_cancellation_writes_cancelled_with_the_stage_it_stopped(
    connection: Connection, stage: VersionStatus
) -> None:
    job = version_in(connection, stage)
    with written(connection) as events:
        cancel(connection, job)
    stale = ["EMBEDDINGS_STALE"] if stage == V.STORING else []
    assert events.types == ["CANCELLED", *stale, "DOCUMENT_CANCELLED"]
    assert (events.events[0]["stage"], events.events[0]["job_id"]) == (stage, job.job_id)


@pytest.mark.parametrize("status", [V.FAILED, V.CANCELLED])
def test_a_manual_retry_writes_manual_retry_of_the_new_job(connection: Connection, status: VersionStatus) -> None:
    version = version_in(connection, status, V.STORING)
    with written(connection) as events:
        retried = retry(connection, version)
    assert events.types == ["MANUAL_RETRY", "EMBEDDINGS_ACTIVE", "DOCUMENT_PENDING"]
    assert (events.events[0]["stage"], events.events[0]["job_id"]) == ("STORING", retried.job_id)
    assert events.detail("EMBEDDINGS_ACTIVE") == {"count": 2}


def test_a_deletion_writes_that_the_pointer_went_and_document_deleted(connection: Connection) -> None:
    version = version_in(connection, V.INDEXED)
    with written(connection) as events:
        delete(connection, version)
    assert events.types == ["CURRENT_CHANGED", "DOCUMENT_DELETED"]
    assert events.detail("CURRENT_CHANGED") == {"old": version.version_id, "new": None}


def test_embeddings_write_one_event_a_version_and_statement(connection: Connection) -> None:
    first, second = version_in(connection, V.STORING), version_in(connection, V.STORING)
    with written(connection) as events:
        run(
            connection,
            "UPDATE embeddings SET status = 'STALE' WHERE version_id IN (:first, :second)",
            first=first.version_id,
            second=second.version_id,
        )
        switch_embeddings(connection, first, "ACTIVE")
        switch_embeddings(connection, first, "ACTIVE")  # changes nothing
    assert events.types == ["EMBEDDINGS_STALE", "EMBEDDINGS_STALE", "EMBEDDINGS_ACTIVE"]
    assert [event["version_id"] for event in events.events] == [first.version_id, second.version_id, first.version_id]


def test_what_changes_nothing_writes_nothing(connection: Connection) -> None:
    version = version_in(connection, V.STORING)
    with written(connection) as events:
        run(connection, "UPDATE documents SET status = status WHERE id = :id", id=version.document_id)
        move_version(connection, version, "STORING")
        run(connection, "UPDATE embedding_jobs SET status = status WHERE id = :id", id=version.job_id)
        run(connection, "UPDATE indexing_attempts SET status = status WHERE id = :id", id=version.attempt_id)
        run(connection, "UPDATE embeddings SET status = status WHERE version_id = :id", id=version.version_id)
        commit_checks(connection)
    assert events.types == []


def test_a_job_alone_writes_nothing(connection: Connection) -> None:
    version = version_in(connection, V.FAILED)
    with written(connection) as events:
        add_job(connection, version)
    assert events.types == []


def test_events_are_there_if_and_only_if_their_change_is(connect: Connect) -> None:
    writer, reader = connect(), connect()
    job = upload(writer)
    assert one(reader, "SELECT count(*) FROM indexing_events") == 0
    writer.commit()
    reader.rollback()
    assert one(reader, "SELECT count(*) FROM indexing_events") == 2
    claim(writer, job)
    writer.rollback()
    reader.rollback()
    assert one(reader, "SELECT count(*) FROM indexing_events") == 2
