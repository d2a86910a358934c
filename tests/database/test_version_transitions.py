"""Which statuses a version may go between, by raw UPDATE as the application role."""

from collections.abc import Callable, Iterator
from itertools import product

import pytest
from sqlalchemy import Connection

from domain.statuses import STAGES, VersionStatus
from tests.database.lifecycle import (
    Indexing,
    add_job,
    cancel,
    claim,
    complete,
    fail,
    move_version,
    retry,
    store_embeddings,
    switch_embeddings,
    to_chunking,
    to_embedding,
    to_storing,
    upload,
)
from tests.database.refusals import commit_checks, one, refused, refused_at_commit, run
from tests.database.states import version_in

V = VersionStatus

STOPPED = (V.FAILED, V.CANCELLED)
# The status, and the stage where a stopped version stopped: the state that decides where it may go.
STATES = [
    *((status, V.STORING) for status in V if status not in STOPPED),
    *((V.FAILED, stage) for stage in STAGES),
    *((V.CANCELLED, stage) for stage in (V.UPLOADED, *STAGES)),
]

# What a bare UPDATE of the status is refused for when the rows that must go with it are missing; None: nothing is.
FORWARD = {
    (V.UPLOADED, V.PARSING): None,  # the claim's, but a version waits for its retry in PARSING too
    (V.PARSING, V.CHUNKING): "versions_chunking_has_text",
    (V.CHUNKING, V.EMBEDDING): "versions_embedding_has_chunks",
    (V.EMBEDDING, V.STORING): "versions_storing_has_embeddings",
}
ENDS = {
    (V.STORING, V.INDEXED),
    *((stage, V.FAILED) for stage in STAGES),
    *((stage, V.CANCELLED) for stage in (V.UPLOADED, *STAGES)),
}


def other_ways() -> Iterator[tuple[VersionStatus, VersionStatus, VersionStatus]]:
    for (old, stopped_stage), new in product(STATES, V):
        retried = old in STOPPED and new == stopped_stage
        if old != new and (old, new) not in FORWARD and (old, new) not in ENDS and not retried:
            yield old, stopped_stage, new


def status_of(connection: Connection, of: Indexing) -> str:
    return str(one(connection, "SELECT status FROM document_versions WHERE id = :id", id=of.version_id))


@pytest.mark.parametrize(("old", "stopped_stage", "new"), list(other_ways()))
def test_a_version_goes_no_other_way(
    connection: Connection, old: VersionStatus, stopped_stage: VersionStatus, new: VersionStatus
) -> None:
    version = version_in(connection, old, stopped_stage)
    with refused(connection, "versions_transition_known"):
        move_version(connection, version, new)


@pytest.mark.parametrize(("old", "new"), [arrow for arrow, rule in FORWARD.items() if rule is not None])
def test_a_version_leaves_a_stage_only_with_the_output_of_that_stage(
    connection: Connection, old: VersionStatus, new: VersionStatus
) -> None:
    version = version_in(connection, old)
    rule = FORWARD[old, new]
    assert rule is not None
    with refused(connection, rule):
        move_version(connection, version, new)


@pytest.mark.parametrize(("old", "new"), sorted(ENDS))
def test_a_version_does_not_end_without_its_job(connection: Connection, old: VersionStatus, new: VersionStatus) -> None:
    version = version_in(connection, old)
    with refused_at_commit(connection, "versions_agree_with_latest_job"):
        move_version(connection, version, new)


@pytest.mark.parametrize(("status", "stage"), [state for state in STATES if state[0] in STOPPED])
def test_a_version_is_not_retried_without_a_new_job(
    connection: Connection, status: VersionStatus, stage: VersionStatus
) -> None:
    version = version_in(connection, status, stage)
    with refused_at_commit(connection, "versions_agree_with_latest_job"):
        move_version(connection, version, stage)


@pytest.mark.parametrize(("status", "stopped_stage"), STATES)
def test_a_version_may_be_written_with_the_status_it_has(
    connection: Connection, status: VersionStatus, stopped_stage: VersionStatus
) -> None:
    version = version_in(connection, status, stopped_stage)
    move_version(connection, version, status)
    commit_checks(connection)


def test_a_version_goes_through_every_stage(connection: Connection) -> None:
    version = upload(connection)
    commit_checks(connection)
    passed = [status_of(connection, version)]
    version = claim(connection, version)
    for step in (lambda *_: None, to_chunking, to_embedding, to_storing, complete):
        step(connection, version)
        commit_checks(connection)
        passed.append(status_of(connection, version))
    assert passed == ["UPLOADED", "PARSING", "CHUNKING", "EMBEDDING", "STORING", "INDEXED"]


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize(("end", "status"), [(fail, V.FAILED), (cancel, V.CANCELLED)])
def test_a_version_that_stops_keeps_its_stage_and_is_retried_there(
    connection: Connection,
    stage: VersionStatus,
    end: Callable[[Connection, Indexing], None],
    status: VersionStatus,
) -> None:
    version = version_in(connection, stage)
    end(connection, version)
    commit_checks(connection)
    stopped = (status_of(connection, version), stopped_stage_of(connection, version))
    retry(connection, version)
    commit_checks(connection)
    assert stopped == (status, stage)
    assert (status_of(connection, version), stopped_stage_of(connection, version)) == (stage, None)


def test_an_uploaded_version_is_cancelled_and_retried_as_uploaded(connection: Connection) -> None:
    version = version_in(connection, V.CANCELLED, V.UPLOADED)
    retry(connection, version)
    commit_checks(connection)
    assert status_of(connection, version) == V.UPLOADED


def stopped_stage_of(connection: Connection, of: Indexing) -> str | None:
    stage: str | None = one(connection, "SELECT stopped_stage FROM document_versions WHERE id = :id", id=of.version_id)
    return stage


def test_a_stopped_version_keeps_the_stage_it_stopped_at(connection: Connection) -> None:
    version = version_in(connection, V.FAILED, V.CHUNKING)
    with refused(connection, "versions_stopped_stage_kept"):
        run(
            connection,
            "UPDATE document_versions SET stopped_stage = 'STORING' WHERE id = :id",
            id=version.version_id,
        )


def test_only_the_newest_version_is_retried(connection: Connection) -> None:
    version = version_in(connection, V.FAILED)
    upload(connection, version.document_id)
    with refused(connection, "versions_only_newest_retried"):
        retry(connection, version)


def test_a_version_whose_text_is_gone_is_not_retried_at_chunking(
    owner_connection: Connection,
) -> None:
    version = version_in(owner_connection, V.CANCELLED, V.CHUNKING)
    run(owner_connection, "DELETE FROM parsed_texts WHERE version_id = :id", id=version.version_id)
    with refused(owner_connection, "versions_chunking_has_text"):
        retry(owner_connection, version)


def test_a_retried_version_takes_its_embeddings_back(connection: Connection) -> None:
    version = version_in(connection, V.FAILED, V.STORING)
    with refused_at_commit(connection, "versions_being_built_have_no_stale_embeddings"):
        add_job(connection, version)
        move_version(connection, version, V.STORING)


def test_a_version_being_built_has_no_stale_embedding(connection: Connection) -> None:
    embedding, storing = version_in(connection, V.EMBEDDING), version_in(connection, V.STORING)
    store_embeddings(connection, embedding, limit=1)
    for version in (embedding, storing):
        with refused_at_commit(connection, "versions_being_built_have_no_stale_embeddings"):
            switch_embeddings(connection, version, "STALE")
