"""Which statuses an embedding may go between, by raw UPDATE as the application role."""

import pytest
from sqlalchemy import Connection

from domain.statuses import EmbeddingStatus, VersionStatus
from tests.database.lifecycle import store_embeddings, switch_embeddings
from tests.database.refusals import commit_checks, one, refused, refused_at_commit, run
from tests.database.states import version_in

V = VersionStatus


def test_every_status_is_judged_here() -> None:
    assert set(EmbeddingStatus) == {"ACTIVE", "STALE"}


@pytest.mark.parametrize("stopped", [V.FAILED, V.CANCELLED])
def test_embeddings_of_a_stopped_version_are_stale(connection: Connection, stopped: VersionStatus) -> None:
    version = version_in(connection, stopped)
    count = "SELECT count(*) FROM embeddings WHERE version_id = :id AND status = 'STALE'"
    assert one(connection, count, id=version.version_id) > 0
    with refused_at_commit(connection, "versions_stopped_have_no_active_embeddings"):
        switch_embeddings(connection, version, "ACTIVE")


def test_embeddings_of_a_superseded_version_stay_stale(connection: Connection) -> None:
    old = version_in(connection, V.INDEXED)
    version_in(connection, V.INDEXED, document_id=old.document_id)
    with refused_at_commit(connection, "versions_superseded_have_no_active_embeddings"):
        switch_embeddings(connection, old, "ACTIVE")


def test_embeddings_of_the_current_version_stay_active(connection: Connection) -> None:
    version = version_in(connection, V.INDEXED)
    with refused_at_commit(connection, "documents_current_is_complete"):
        switch_embeddings(connection, version, "STALE")


@pytest.mark.parametrize("status", EmbeddingStatus)
def test_an_embedding_may_be_written_with_the_status_it_has(connection: Connection, status: EmbeddingStatus) -> None:
    version = version_in(connection, V.INDEXED if status == EmbeddingStatus.ACTIVE else V.FAILED)
    run(
        connection,
        "UPDATE embeddings SET status = :status WHERE version_id = :id",
        status=status,
        id=version.version_id,
    )
    commit_checks(connection)


def test_an_embedding_is_born_active(connection: Connection) -> None:
    version = version_in(connection, V.EMBEDDING)
    with refused(connection, "embeddings_born_active"):
        run(
            connection,
            "INSERT INTO embeddings (chunk_id, model_id, version_id, owner_id, embedding, status) "
            "SELECT id, :model, version_id, :owner, '[1,1,1]', 'STALE' FROM chunks WHERE version_id = :version",
            model=version.model_id,
            owner=version.owner_id,
            version=version.version_id,
        )
    store_embeddings(connection, version)
    commit_checks(connection)
