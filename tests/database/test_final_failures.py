"""A final failure leaves one record with every attempt's error and one notification; nothing else does."""

from typing import Any

from sqlalchemy import Connection

from domain.failures import FailureType
from domain.statuses import VersionStatus
from tests.database.lifecycle import Indexing, claim, complete, end_attempt, end_job, fail, release, retry, upload
from tests.database.refusals import commit_checks, one, row, run
from tests.database.states import version_in

V = VersionStatus


def record(connection: Connection, of: Indexing) -> dict[str, Any]:
    return row(connection, "SELECT * FROM processing_failures WHERE job_id = :job", job=of.job_id)


def notifications(connection: Connection, of: Indexing) -> list[dict[str, Any]]:
    rows = run(connection, "SELECT * FROM notifications WHERE document_id = :id ORDER BY id", id=of.document_id)
    return [notification._asdict() for notification in rows]


def test_the_record_holds_every_failed_attempt_in_order_and_no_released_one(connection: Connection) -> None:
    run(connection, "UPDATE failure_policies SET base_delay = '0'")
    job = upload(connection, max_retry_count=1)
    job = claim(connection, job)
    fail(connection, job, FailureType.STORAGE_UNAVAILABLE)
    job = claim(connection, job)
    release(connection, job)
    job = claim(connection, job)
    fail(connection, job, FailureType.WORKER_INTERNAL_ERROR)
    commit_checks(connection)

    failure = record(connection, job)
    assert [(e["attempt"], e["failureType"], e["stage"], e["errorMessage"]) for e in failure["errors"]] == [
        (1, "STORAGE_UNAVAILABLE", "PARSING", "it broke"),
        (3, "WORKER_INTERNAL_ERROR", "PARSING", "it broke"),
    ]
    assert (failure["stage"], failure["failure_type"], failure["retry_count"]) == (
        "PARSING",
        "WORKER_INTERNAL_ERROR",
        1,
    )
    assert (failure["document_id"], failure["version_id"], failure["owner_id"]) == (
        job.document_id,
        job.version_id,
        job.owner_id,
    )
    finished = "SELECT finished_at FROM indexing_attempts WHERE id = :id"
    assert failure["final_failed_at"] == one(connection, finished, id=job.attempt_id)


def test_nobody_is_told_of_a_failure_that_is_retried(connection: Connection) -> None:
    job = version_in(connection, V.PARSING)
    fail(connection, job, FailureType.STORAGE_UNAVAILABLE)
    assert one(connection, "SELECT count(*) FROM processing_failures") == 0
    assert notifications(connection, job) == []


def test_the_owner_is_told_once_of_a_final_failure(connection: Connection) -> None:
    job = version_in(connection, V.FAILED, V.PARSING)
    (told,) = notifications(connection, job)
    assert (told["type"], told["owner_id"], told["version_id"]) == ("DOCUMENT_FAILED", "owner", job.version_id)
    assert told["payload"]["failureType"] == "DOCUMENT_CONTENT_INVALID"
    assert told["payload"]["searchable"] is False
    assert told["read_at"] is None


def test_a_failed_second_version_says_that_the_first_is_searchable(connection: Connection) -> None:
    first = version_in(connection, V.INDEXED)
    version_in(connection, V.FAILED, document_id=first.document_id)
    indexed, failed = notifications(connection, first)
    assert (indexed["type"], failed["type"], failed["payload"]["searchable"]) == (
        "DOCUMENT_INDEXED",
        "DOCUMENT_FAILED",
        True,
    )


def test_a_retried_version_that_fails_again_has_a_record_of_each_job(connection: Connection) -> None:
    first = version_in(connection, V.FAILED, V.PARSING)
    second = claim(connection, retry(connection, first))
    fail(connection, second)
    commit_checks(connection)
    assert record(connection, first)["id"] != record(connection, second)["id"]
    assert len(notifications(connection, first)) == 2


def test_the_owner_is_told_when_a_version_becomes_current(connection: Connection) -> None:
    version = version_in(connection, V.INDEXED)
    (told,) = notifications(connection, version)
    assert (told["type"], told["version_id"]) == ("DOCUMENT_INDEXED", version.version_id)
    assert (told["payload"]["versionNo"], told["payload"]["chunkCount"]) == (1, 2)


def test_nobody_is_told_of_a_version_that_completes_behind_a_newer_one(connection: Connection) -> None:
    old = version_in(connection, V.STORING)
    new = version_in(connection, V.INDEXED, document_id=old.document_id)
    complete(connection, old)
    commit_checks(connection)
    assert [told["version_id"] for told in notifications(connection, old)] == [new.version_id]


def test_the_record_and_the_notification_are_written_with_the_job(connection: Connection) -> None:
    job = version_in(connection, V.PARSING)
    end_attempt(connection, job, "FAILED", FailureType.DOCUMENT_CONTENT_INVALID)
    assert notifications(connection, job) == []
    end_job(connection, job, "FAILED")
    assert len(notifications(connection, job)) == 1
    assert record(connection, job)["job_id"] == job.job_id
