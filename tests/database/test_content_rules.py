"""Content is written once, in its stage, and counted (rules 10 and 14 of the database)."""

from collections.abc import Callable

import pytest
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from domain.statuses import VersionStatus
from tests.database.lifecycle import Indexing, delete, store_chunks, store_embeddings, store_text
from tests.database.refusals import commit_checks, not_permitted, one, refused, refused_at_commit, row, run
from tests.database.states import version_in

V = VersionStatus

NEVER_CHANGE = {
    "parsed_texts_never_change": "UPDATE parsed_texts SET text = text",
    "chunks_never_change": "UPDATE chunks SET text = text",
    "events_never_change": "UPDATE indexing_events SET type = type",
    "failures_never_change": "UPDATE processing_failures SET retry_count = retry_count",
    "notifications_only_read": "UPDATE notifications SET payload = payload",
}


def counters(connection: Connection, of: Indexing) -> tuple[int, int, int]:
    counted = row(
        connection,
        "SELECT chunk_count, embedding_count, active_embedding_count FROM document_versions WHERE id = :id",
        id=of.version_id,
    )
    return counted["chunk_count"], counted["embedding_count"], counted["active_embedding_count"]


@pytest.mark.parametrize("rule", NEVER_CHANGE)
def test_content_and_history_never_change(connection: Connection, owner_connection: Connection, rule: str) -> None:
    with not_permitted(connection):
        run(connection, NEVER_CHANGE[rule])
    with refused(owner_connection, rule):
        run(owner_connection, NEVER_CHANGE[rule])


@pytest.mark.parametrize("column", ["chunk_id", "model_id", "version_id", "owner_id", "embedding", "created_at"])
def test_only_the_status_of_an_embedding_changes(connection: Connection, column: str) -> None:
    with refused(connection, "embeddings_never_change"):
        run(connection, f"UPDATE embeddings SET status = 'STALE', {column} = {column}")


def test_an_embedding_is_not_replaced_by_an_upsert(connection: Connection) -> None:
    version = version_in(connection, V.EMBEDDING)
    with refused(connection, "embeddings_never_change"):
        run(
            connection,
            "INSERT INTO embeddings (chunk_id, model_id, version_id, owner_id, embedding) "
            "SELECT id, :model, version_id, 'owner', '[1,1,1]' FROM chunks WHERE version_id = :version "
            "ON CONFLICT (chunk_id, model_id) DO UPDATE SET embedding = excluded.embedding",
            model=version.model_id,
            version=version.version_id,
        )


@pytest.mark.parametrize(
    ("store", "stage", "rule"),
    [
        (store_text, V.PARSING, "parsed_texts_only_while_parsing"),
        (store_chunks, V.CHUNKING, "chunks_only_while_chunking"),
    ],
)
def test_text_and_chunks_are_stored_only_in_their_stage(
    connection: Connection, store: Callable[[Connection, Indexing], None], stage: VersionStatus, rule: str
) -> None:
    for status in V:
        version = version_in(connection, status)
        if status == stage:
            store(connection, version)
            commit_checks(connection)
        else:
            with refused(connection, rule):
                store(connection, version)


def test_text_is_stored_for_a_version_that_exists(connection: Connection) -> None:
    with refused(connection, "parsed_texts_only_while_parsing"):
        run(connection, "INSERT INTO parsed_texts (version_id, text, page_starts) VALUES (-1, 'x', '{0}')")


@pytest.mark.parametrize("status", [V.CHUNKING, V.STORING, V.INDEXED, V.FAILED, V.CANCELLED])
def test_embeddings_are_stored_only_while_embedding(owner_connection: Connection, status: VersionStatus) -> None:
    version = version_in(owner_connection, status)
    if status == V.CHUNKING:
        store_chunks(owner_connection, version)
    # Only where an embedding is missing can one be stored.
    run(owner_connection, "DELETE FROM embeddings WHERE version_id = :id", id=version.version_id)
    with refused(owner_connection, "embeddings_only_while_embedding"):
        store_embeddings(owner_connection, version)


@pytest.mark.parametrize("given", [4000, 4002])
def test_embeddings_have_the_dimensions_of_their_model(connection: Connection, given: int) -> None:
    version = version_in(connection, V.EMBEDDING, dimensions=4001)
    with refused(connection, "embeddings_have_models_dimensions"):
        store_vector(connection, version, given)


@pytest.mark.parametrize("given", [2, 4])
def test_the_index_of_a_model_refuses_other_dimensions_before_the_rule_does(connection: Connection, given: int) -> None:
    version = version_in(connection, V.EMBEDDING, dimensions=3)
    with pytest.raises(DBAPIError, match=f"expected 3 dimensions, not {given}"):
        store_vector(connection, version, given)


def store_vector(connection: Connection, of: Indexing, dimensions: int) -> None:
    run(
        connection,
        "INSERT INTO embeddings (chunk_id, model_id, version_id, owner_id, embedding) "
        "SELECT id, :model, version_id, 'owner', cast(:vector AS vector) FROM chunks WHERE version_id = :version",
        model=of.model_id,
        vector=str([1] * dimensions),
        version=of.version_id,
    )


@pytest.mark.parametrize(("dimensions", "indexes"), [(1, 1), (2000, 1), (2001, 1), (4000, 1), (4001, 0)])
def test_a_model_has_an_index_as_far_as_pgvector_can_make_one(
    connection: Connection, dimensions: int, indexes: int
) -> None:
    model = one(connection, "SELECT register_model('test:sized', :dimensions)", dimensions=dimensions)
    index = "SELECT count(*) FROM pg_class WHERE relname = 'embeddings_of_model_' || cast(:model AS text)"
    assert one(connection, index, model=model) == indexes


def test_a_model_is_registered_once(connection: Connection) -> None:
    first = one(connection, "SELECT register_model('test:again', 3)")
    assert one(connection, "SELECT register_model('test:again', 3)") == first
    assert one(connection, "SELECT register_model('test:again', 4)") != first


def test_counters_follow_the_content(connection: Connection) -> None:
    version = version_in(connection, V.CHUNKING)
    store_chunks(connection, version, 3)
    chunked = counters(connection, version)
    run(connection, "UPDATE document_versions SET status = 'EMBEDDING' WHERE id = :id", id=version.version_id)
    store_embeddings(connection, version, limit=2)
    embedded = counters(connection, version)
    commit_checks(connection)
    assert (chunked, embedded) == ((3, 0, 0), (3, 2, 2))


def test_counters_follow_content_that_goes(connection: Connection) -> None:
    version = version_in(connection, V.INDEXED)
    delete(connection, version)
    commit_checks(connection)
    assert counters(connection, version) == (0, 0, 0)


def test_one_statement_may_write_content_of_many_versions(connection: Connection) -> None:
    first, second = version_in(connection, V.EMBEDDING), version_in(connection, V.EMBEDDING)
    run(
        connection,
        "INSERT INTO embeddings (chunk_id, model_id, version_id, owner_id, embedding) "
        "SELECT id, :model, version_id, 'owner', '[1,1,1]' FROM chunks WHERE version_id IN (:first, :second)",
        model=first.model_id,
        first=first.version_id,
        second=second.version_id,
    )
    commit_checks(connection)
    assert counters(connection, first) == counters(connection, second) == (2, 2, 2)


def test_a_version_that_lost_its_chunks_embeds_no_more(owner_connection: Connection) -> None:
    version = version_in(owner_connection, V.EMBEDDING)
    with refused_at_commit(owner_connection, "versions_embedding_has_chunks"):
        run(owner_connection, "DELETE FROM chunks WHERE version_id = :id", id=version.version_id)


def test_a_version_that_lost_an_embedding_is_not_stored(owner_connection: Connection) -> None:
    version = version_in(owner_connection, V.STORING)
    remove_one_embedding(owner_connection, version, check="versions_storing_has_embeddings")


def test_the_current_version_loses_no_embedding(owner_connection: Connection) -> None:
    version = version_in(owner_connection, V.INDEXED)
    remove_one_embedding(owner_connection, version, check="documents_current_is_complete")


def remove_one_embedding(connection: Connection, of: Indexing, check: str) -> None:
    with refused_at_commit(connection, check):
        run(
            connection,
            "DELETE FROM embeddings WHERE chunk_id = (SELECT min(id) FROM chunks WHERE version_id = :id)",
            id=of.version_id,
        )


def test_a_version_is_not_indexed_without_all_its_embeddings(owner_connection: Connection) -> None:
    version = version_in(owner_connection, V.STORING)
    run(owner_connection, "DELETE FROM embeddings WHERE version_id = :id", id=version.version_id)
    with refused(owner_connection, "versions_indexed_is_complete"):
        run(owner_connection, "UPDATE document_versions SET status = 'INDEXED' WHERE id = :id", id=version.version_id)
