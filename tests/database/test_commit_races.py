"""Two sessions that would each pass alone: the commit checks lock what they reason about, so one of them is refused."""

from collections.abc import Callable

import pytest
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from domain.statuses import VersionStatus
from tests.conftest import Connect, WaitUntilBlocked
from tests.database.lifecycle import (
    Indexing,
    add_job,
    cancel,
    claim,
    complete,
    delete,
    end_attempt,
    end_job,
    move_document,
    move_version,
    set_current,
    store_chunks,
    store_embeddings,
    store_text,
    switch_embeddings,
    upload,
)
from tests.database.races import blocked, refusal
from tests.database.refusals import commit_checks, one, rule_of, run
from tests.database.states import version_in

pytestmark = pytest.mark.race

V = VersionStatus


def stop_job(connection: Connection, of: Indexing) -> None:
    """Cancel a version's job and leave the document to the other version's."""
    end_attempt(connection, of, "CANCELLED")
    end_job(connection, of, "CANCELLED")
    move_version(connection, of, "CANCELLED")


def test_two_sessions_that_each_leave_the_last_live_job_to_the_other(
    connect: Connect, wait_until_blocked: WaitUntilBlocked
) -> None:
    first, second = connect(), connect()
    one_version = version_in(first, V.PARSING)
    other_version = claim(first, upload(first, one_version.document_id))
    first.commit()
    stop_job(first, one_version)
    stop_job(second, other_version)
    commit_checks(first)  # sees the other's job alive, and holds the document from here on
    with blocked(second.commit, second, wait_until_blocked) as running:
        first.commit()
        assert refusal(running) == "documents_pending_has_live_job"


def test_an_upload_against_the_end_of_the_last_job(connect: Connect, wait_until_blocked: WaitUntilBlocked) -> None:
    ending, uploading = connect(), connect()
    version = version_in(ending, V.PARSING)
    ending.commit()
    stop_job(ending, version)
    move_document(ending, version, "CANCELLED")
    with blocked(lambda: committed(uploading, version), uploading, wait_until_blocked) as running:
        ending.commit()
        assert refusal(running) == "documents_stopped_has_no_live_job"


def committed(connection: Connection, of: Indexing) -> None:
    """A new version of a document whose status is not looked at, as the domain would never do it."""
    version_id = one(
        connection,
        "INSERT INTO document_versions (document_id, owner_id, version_no, storage_uri, model_id) "
        "VALUES (:document, 'owner', 2, 'file:///a', :model) RETURNING id",
        document=of.document_id,
        model=of.model_id,
    )
    add_job(connection, Indexing(of.owner_id, of.document_id, version_id, 0, of.model_id, of.worker_id))
    connection.commit()


def test_the_end_of_the_last_job_against_an_upload(connect: Connect, wait_until_blocked: WaitUntilBlocked) -> None:
    ending, uploading = connect(), connect()
    version = version_in(ending, V.PARSING)
    ending.commit()
    upload(uploading, version.document_id)
    stop_job(ending, version)

    def end() -> None:
        move_document(ending, version, "CANCELLED")
        ending.commit()

    with blocked(end, ending, wait_until_blocked) as running:
        uploading.commit()
        assert refusal(running) == "documents_stopped_has_no_live_job"


def test_an_upload_against_a_deletion(connect: Connect, wait_until_blocked: WaitUntilBlocked) -> None:
    deleting, uploading = connect(), connect()
    version = version_in(deleting, V.INDEXED)
    deleting.commit()
    delete(deleting, version)
    with blocked(lambda: committed(uploading, version), uploading, wait_until_blocked) as running:
        deleting.commit()
        assert refusal(running) == "documents_stopped_has_no_live_job"


def test_a_retry_against_an_upload_of_a_newer_version(connect: Connect, wait_until_blocked: WaitUntilBlocked) -> None:
    retrying, uploading = connect(), connect()
    version = version_in(retrying, V.FAILED, V.PARSING)
    retrying.commit()
    upload(uploading, version.document_id)
    add_job(retrying, version)
    with blocked(lambda: move_version(retrying, version, "PARSING"), retrying, wait_until_blocked) as running:
        uploading.commit()
        assert refusal(running) == "versions_only_newest_retried"


def test_two_retries_of_one_version(connect: Connect, wait_until_blocked: WaitUntilBlocked) -> None:
    first, second = connect(), connect()
    version = version_in(first, V.FAILED, V.PARSING)
    first.commit()
    add_job(first, version)
    move_version(first, version, "PARSING")
    move_document(first, version, "PENDING")
    with blocked(lambda: add_job(second, version), second, wait_until_blocked) as running:
        first.commit()
        assert refusal(running) == "jobs_one_live_per_version"


def test_activated_embeddings_against_a_moved_pointer(connect: Connect, wait_until_blocked: WaitUntilBlocked) -> None:
    """The old version's embeddings are switched back on by one who still sees it as current."""
    moving, activating = connect(), connect()
    old = version_in(moving, V.INDEXED)
    new = version_in(moving, V.STORING, document_id=old.document_id)
    moving.commit()
    complete(moving, new)

    def activate() -> None:
        switch_embeddings(activating, old, "STALE")
        switch_embeddings(activating, old, "ACTIVE")
        activating.commit()

    with blocked(activate, activating, wait_until_blocked) as running:
        moving.commit()
        assert refusal(running) == "versions_superseded_have_no_active_embeddings"


def test_a_moved_pointer_against_activated_embeddings(connect: Connect, wait_until_blocked: WaitUntilBlocked) -> None:
    """A version that completed behind the current one is switched on while it becomes superseded for good."""
    activating, moving = connect(), connect()
    old = version_in(activating, V.INDEXED)
    new = version_in(activating, V.STORING, document_id=old.document_id)
    activating.commit()
    # The mover supersedes the old version; the other session touches the same rows first and holds the version.
    run(activating, "UPDATE embeddings SET status = 'STALE' WHERE version_id = :id", id=old.version_id)
    run(activating, "UPDATE embeddings SET status = 'ACTIVE' WHERE version_id = :id", id=old.version_id)
    end_attempt(moving, new, "INDEXED")
    end_job(moving, new, "INDEXED")
    move_version(moving, new, "INDEXED")
    set_current(moving, new)  # forgets to make the old embeddings STALE
    with blocked(activating.commit, activating, wait_until_blocked) as running:
        with pytest.raises(DBAPIError) as caught:
            moving.commit()
        running.result(timeout=30)
    assert rule_of(caught.value) == "versions_superseded_have_no_active_embeddings"


def test_of_two_versions_completed_at_once_the_older_one_does_not_stay_in_front(
    connect: Connect, wait_until_blocked: WaitUntilBlocked
) -> None:
    first, second = connect(), connect()
    old = version_in(first, V.STORING)
    new = version_in(first, V.STORING, document_id=old.document_id)
    first.commit()
    complete(first, new)
    with blocked(lambda: complete(second, old), second, wait_until_blocked) as running:
        first.commit()
        assert refusal(running) == "documents_current_never_goes_back"


def test_a_version_that_relies_on_a_newer_one_that_never_was(
    connect: Connect, wait_until_blocked: WaitUntilBlocked
) -> None:
    """It completes behind a newer version whose transaction is then rolled back."""
    newer, older = connect(), connect()
    old = version_in(newer, V.STORING)
    new = version_in(newer, V.STORING, document_id=old.document_id)
    newer.commit()
    complete(newer, new)
    end_attempt(older, old, "INDEXED")
    end_job(older, old, "INDEXED")
    move_version(older, old, "INDEXED")
    switch_embeddings(older, old, "STALE")
    with blocked(older.commit, older, wait_until_blocked) as running:
        newer.rollback()
        assert refusal(running) == "versions_indexed_become_current"


@pytest.mark.parametrize(
    ("stage", "store", "rule"),
    [
        (V.PARSING, store_text, "parsed_texts_only_while_parsing"),
        (V.CHUNKING, store_chunks, "chunks_only_while_chunking"),
        (V.EMBEDDING, store_embeddings, "embeddings_only_while_embedding"),
    ],
)
def test_content_against_a_cancellation(
    connect: Connect,
    wait_until_blocked: WaitUntilBlocked,
    stage: VersionStatus,
    store: Callable[[Connection, Indexing], None],
    rule: str,
) -> None:
    cancelling, storing = connect(), connect()
    version = version_in(cancelling, stage)
    cancelling.commit()
    stop_job(cancelling, version)
    move_document(cancelling, version, "CANCELLED")
    with blocked(lambda: store(storing, version), storing, wait_until_blocked) as running:
        cancelling.commit()
        assert refusal(running) == rule


def test_chunks_against_the_end_of_chunking(connect: Connect, wait_until_blocked: WaitUntilBlocked) -> None:
    """The counters that the next stage relies on can not be overtaken."""
    moving, storing = connect(), connect()
    version = version_in(moving, V.CHUNKING)
    store_chunks(moving, version)
    moving.commit()
    move_version(moving, version, "EMBEDDING")
    with blocked(lambda: store_chunks(storing, version), storing, wait_until_blocked) as running:
        moving.commit()
        assert refusal(running) == "chunks_only_while_chunking"


def test_embeddings_switched_on_against_a_cancellation(connect: Connect, wait_until_blocked: WaitUntilBlocked) -> None:
    cancelling, activating = connect(), connect()
    version = version_in(cancelling, V.STORING)
    cancelling.commit()
    cancel(cancelling, version)

    def activate() -> None:
        # Waits for the row, then finds it STALE.
        run(activating, "UPDATE embeddings SET status = 'ACTIVE' WHERE version_id = :id", id=version.version_id)
        activating.commit()

    with blocked(activate, activating, wait_until_blocked) as running:
        cancelling.commit()
        assert refusal(running) == "versions_stopped_have_no_active_embeddings"


def test_embeddings_switched_off_against_a_completion(connect: Connect, wait_until_blocked: WaitUntilBlocked) -> None:
    completing, switching = connect(), connect()
    version = version_in(completing, V.STORING)
    completing.commit()
    complete(completing, version)

    def switch_off() -> None:
        switch_embeddings(switching, version, "STALE")
        switching.commit()

    with blocked(switch_off, switching, wait_until_blocked) as running:
        completing.commit()
        assert refusal(running) == "documents_current_is_complete"
