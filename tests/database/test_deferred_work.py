"""How many checks a statement leaves for its commit: one a row it moved, however much content it wrote."""

import pytest
from sqlalchemy import Connection

from domain.statuses import VersionStatus
from tests.database.lifecycle import (
    claim,
    delete,
    move_version,
    store_chunks,
    store_embeddings,
    switch_embeddings,
    upload,
)
from tests.database.refusals import commit_checks, run
from tests.database.states import version_in

V = VersionStatus

MANY = 50_000


@pytest.fixture
def counting(superuser: Connection) -> Connection:
    """A connection that counts the calls of functions, which only a superuser may."""
    run(superuser, "SET LOCAL track_functions = 'pl'")
    superuser.info["calls"] = {}
    return superuser


def checks(connection: Connection) -> dict[str, int]:
    """Calls of the check functions since the last look, with those that are still to come."""
    commit_checks(connection)
    calls = "SELECT funcname, calls FROM pg_stat_xact_user_functions WHERE funcname LIKE 'check\\_%'"
    total = {name: count for name, count in run(connection, calls)}
    seen = connection.info["calls"]
    new = {name: count - seen.get(name, 0) for name, count in total.items() if count > seen.get(name, 0)}
    connection.info["calls"] = total
    return new


def test_a_heartbeat_queues_no_check(counting: Connection) -> None:
    job = version_in(counting, V.PARSING)
    checks(counting)
    run(
        counting,
        "UPDATE embedding_jobs SET lease_expires_at = lease_expires_at + interval '1 minute' WHERE id = :id",
        id=job.job_id,
    )
    assert checks(counting) == {}


def test_a_stage_that_begins_queues_no_check(counting: Connection) -> None:
    job = version_in(counting, V.PARSING)
    checks(counting)
    run(counting, "UPDATE indexing_attempts SET stage_started_at = now() WHERE id = :id", id=job.attempt_id)
    assert checks(counting) == {}


def test_a_worker_that_is_seen_queues_no_check(counting: Connection) -> None:
    version_in(counting, V.PARSING)
    checks(counting)
    run(counting, "UPDATE workers SET last_seen_at = now()")
    assert checks(counting) == {}


def test_a_claim_looks_at_its_job_and_its_version_but_at_no_document(counting: Connection) -> None:
    job = upload(counting)
    checks(counting)
    claim(counting, job)
    called = checks(counting)
    assert called["check_job"] <= 2
    assert called["check_version"] == 1
    assert "check_document" not in called


def test_content_by_the_thousand_queues_one_check_a_statement(counting: Connection) -> None:
    version = version_in(counting, V.CHUNKING)
    # Its index would take most of the test's time, and does not matter here.
    run(counting, f"DROP INDEX embeddings_of_model_{version.model_id}")
    checks(counting)

    store_chunks(counting, version, MANY)
    assert checks(counting) == {"check_at_commit": 1, "check_version": 1}

    move_version(counting, version, "EMBEDDING")
    checks(counting)
    store_embeddings(counting, version)
    assert checks(counting) == {"check_at_commit": 1, "check_version": 1}

    # Half of them at a time, within one commit: the check sees the sum.
    run(
        counting,
        "UPDATE embeddings SET status = 'STALE' WHERE version_id = :id AND chunk_id % 2 = 0",
        id=version.version_id,
    )
    switch_embeddings(counting, version, "ACTIVE")
    assert checks(counting) == {"check_at_commit": 2, "check_version": 2}


def test_a_deletion_queues_one_check_a_kind_of_content(counting: Connection) -> None:
    version = version_in(counting, V.INDEXED)
    checks(counting)
    delete(counting, version)
    called = checks(counting)
    assert called["check_version"] == 2
    assert called["check_at_commit"] == 3
