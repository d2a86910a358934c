"""Times are the database's own, whatever a caller writes."""

import pytest
from sqlalchemy import Connection

from domain.statuses import VersionStatus
from tests.database.lifecycle import claim_job, complete, register_model, upload
from tests.database.refusals import one, row, run
from tests.database.states import version_in

V = VersionStatus

JUST_NOW = "{} BETWEEN now() AND clock_timestamp()"


def assert_just_now(connection: Connection, table: str, id_: int, *columns: str) -> None:
    """The times lie between the start of the transaction and now."""
    judged = ", ".join(f"{JUST_NOW.format(column)} AS {column}" for column in columns)
    times = row(connection, f"SELECT {judged} FROM {table} WHERE id = :id", id=id_)
    assert times == dict.fromkeys(columns, True)


def test_a_document_is_dated_by_the_database(connection: Connection) -> None:
    document = one(
        connection,
        "INSERT INTO documents (owner_id, name, created_at, updated_at) "
        "VALUES ('owner', 'a', 'epoch', 'infinity') RETURNING id",
    )
    assert_just_now(connection, "documents", document, "created_at", "updated_at")
    run(connection, "UPDATE documents SET updated_at = 'infinity' WHERE id = :id", id=document)
    assert_just_now(connection, "documents", document, "updated_at")


def test_a_version_is_dated_by_the_database(connection: Connection) -> None:
    document = upload(connection).document_id
    version = one(
        connection,
        "INSERT INTO document_versions (document_id, owner_id, version_no, storage_uri, model_id, created_at) "
        "VALUES (:document, 'owner', 2, 'file:///a', :model, 'infinity') RETURNING id",
        document=document,
        model=register_model(connection),
    )
    assert_just_now(connection, "document_versions", version, "created_at")


def test_a_version_is_indexed_when_the_database_says_so(owner_connection: Connection) -> None:
    version = version_in(owner_connection, V.STORING)
    run(
        owner_connection,
        "UPDATE document_versions SET status = 'INDEXED', indexed_at = 'epoch' WHERE id = :id",
        id=version.version_id,
    )
    assert_just_now(owner_connection, "document_versions", version.version_id, "indexed_at")


def test_a_job_is_due_from_its_birth(connection: Connection) -> None:
    version = version_in(connection, V.CANCELLED)
    job = one(
        connection,
        "INSERT INTO embedding_jobs (version_id, document_id, owner_id, max_retry_count, created_at, updated_at) "
        "VALUES (:version, :document, 'owner', 3, 'infinity', 'infinity') RETURNING id",
        version=version.version_id,
        document=version.document_id,
    )
    assert_just_now(connection, "embedding_jobs", job, "created_at", "due_at", "updated_at")


def test_a_job_is_changed_later_each_time(connection: Connection) -> None:
    job = upload(connection).job_id
    times = [
        one(
            connection,
            "UPDATE embedding_jobs SET updated_at = 'epoch' WHERE id = :id RETURNING updated_at",
            id=job,
        )
        for _ in range(3)
    ]
    assert times == sorted(set(times))


def test_an_attempt_is_dated_by_the_database(connection: Connection) -> None:
    job = upload(connection)
    claim_job(connection, job)
    attempt = one(
        connection,
        "INSERT INTO indexing_attempts (job_id, attempt_no, worker_id, claim_token, started_at) "
        "SELECT id, attempt_no, worker_id, claim_token, 'infinity' FROM embedding_jobs WHERE id = :job RETURNING id",
        job=job.job_id,
    )
    assert_just_now(connection, "indexing_attempts", attempt, "started_at")
    run(connection, "UPDATE indexing_attempts SET stage_started_at = 'infinity' WHERE id = :id", id=attempt)
    assert_just_now(connection, "indexing_attempts", attempt, "stage_started_at")
    run(
        connection,
        "UPDATE indexing_attempts SET status = 'RELEASED', finished_at = 'infinity' WHERE id = :id",
        id=attempt,
    )
    assert_just_now(connection, "indexing_attempts", attempt, "finished_at")


def test_a_worker_is_dated_by_the_database(connection: Connection) -> None:
    worker = one(
        connection,
        "INSERT INTO workers (name, queues, concurrency, started_at, last_seen_at, stopped_at) "
        "VALUES ('w', '{}', 1, 'epoch', 'infinity', 'epoch') RETURNING id",
    )
    assert_just_now(connection, "workers", worker, "started_at", "last_seen_at")
    assert one(connection, "SELECT stopped_at IS NULL FROM workers WHERE id = :id", id=worker)
    for column in ("last_seen_at", "stopped_at"):
        run(connection, f"UPDATE workers SET {column} = 'infinity' WHERE id = :id", id=worker)
        assert_just_now(connection, "workers", worker, column)


@pytest.mark.parametrize("time", ["epoch", "infinity"])
def test_a_notification_is_read_when_the_database_says_so_and_once(connection: Connection, time: str) -> None:
    version = version_in(connection, V.STORING)
    complete(connection, version)
    read = "UPDATE notifications SET read_at = cast(:time AS timestamptz) WHERE document_id = :id RETURNING id, read_at"
    first = row(connection, read, time=time, id=version.document_id)
    assert_just_now(connection, "notifications", first["id"], "read_at")
    again = row(connection, read, time=time, id=version.document_id)
    unread = row(connection, read, time=None, id=version.document_id)
    assert first["read_at"] == again["read_at"] == unread["read_at"]


def test_a_hint_to_claim_is_never_dated_in_the_future(connection: Connection) -> None:
    sent = one(connection, "UPDATE claim_hints SET sent_at = 'infinity' RETURNING sent_at <= clock_timestamp()")
    moved_back = one(connection, "UPDATE claim_hints SET sent_at = 'epoch' RETURNING sent_at = 'epoch'")
    assert (sent, moved_back) == (True, True)


def test_content_and_history_are_dated_by_the_database(connection: Connection) -> None:
    """No caller may write these columns at all; see test_privileges."""
    version_in(connection, V.INDEXED)
    for table in ("embeddings", "indexing_events", "notifications"):
        judged = f"SELECT count(*) > 0 AND bool_and({JUST_NOW.format('created_at')}) FROM {table}"
        assert one(connection, judged), table
