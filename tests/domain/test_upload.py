"""What an upload may hold: refused in words before anything is written, or stored as it is."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection

from domain.enqueue import Upload, enqueue_document, enqueue_documents
from domain.errors import InvalidRequest
from tests.domain.indexing import Indexing
from tests.domain.rows import count, row

GOOD = Upload("ann", "a.txt", "file:///a.txt", "a" * 64, "r1", 3, media_type="text/plain", size_bytes=1)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("owner_id", ""),
        ("owner_id", " \t"),
        ("owner_id", "a" * 256),
        ("owner_id", "a\x00b"),
        ("owner_id", "\ud800"),
        ("name", ""),
        ("name", "\u3000"),
        ("name", "a" * 1025),
        ("name", "가" * 342),
        ("name", "a\x00"),
        ("name", "half \udfff"),
        ("storage_uri", ""),
        ("storage_uri", "a" * 4097),
        ("storage_uri", "file:///\x00"),
        ("content_sha256", ""),
        ("content_sha256", "A" * 64),
        ("content_sha256", "a" * 63),
        ("content_sha256", "a" * 64 + "\n"),
        ("content_sha256", "g" * 64),
        ("content_sha256", "٣" * 64),
        ("request_id", ""),
        ("request_id", "r" * 256),
        ("request_id", "\x00"),
        ("media_type", ""),
        ("media_type", "m" * 256),
        ("max_retry_count", -1),
        ("max_retry_count", 1001),
        ("size_bytes", -1),
        ("size_bytes", 2**63),
    ],
)
def test_an_upload_that_cannot_be_stored_is_refused_in_words_before_anything_is_written(
    indexing: Indexing, connection: Connection, field: str, value: object
) -> None:
    bad = replace(GOOD, name="b.txt") if field != "name" else GOOD
    bad = replace(bad, request_id="r2") if field != "request_id" else bad
    with pytest.raises(InvalidRequest, match=field):
        enqueue_documents(connection, [GOOD, replace(bad, **{field: value})], indexing.model_id)  # type: ignore[arg-type]
    assert count(connection, "documents") == 0


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("owner_id", "가" * 255),
        ("name", "a" * 1024),
        ("storage_uri", "a" * 4096),
        ("request_id", "요" * 255),
        ("media_type", "m" * 255),
        ("max_retry_count", 0),
        ("max_retry_count", 1000),
        ("size_bytes", 0),
        ("size_bytes", 2**63 - 1),
    ],
)
def test_the_longest_and_largest_values_are_stored(
    indexing: Indexing, connection: Connection, field: str, value: object
) -> None:
    enqueued = enqueue_document(connection, replace(GOOD, **{field: value}), indexing.model_id)  # type: ignore[arg-type]
    stored = {
        **row(connection, "documents", enqueued.document_id)._mapping,
        **row(connection, "embedding_jobs", enqueued.job_id or 0)._mapping,
        **row(connection, "document_versions", enqueued.version_id)._mapping,
    }
    assert stored[field] == value
    indexing.check_commit()


@given(
    st.text(st.characters(exclude_categories=()), max_size=300),
    st.text(st.characters(exclude_categories=()), max_size=300),
    st.text(st.characters(exclude_categories=()), max_size=80),
    st.text(st.characters(exclude_categories=()), max_size=300) | st.none(),
)
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
def test_any_text_is_stored_as_it_is_or_refused_in_words(
    connection: Connection, name: str, owner_id: str, sha256: str, request_id: str | None
) -> None:
    savepoint = connection.begin_nested()
    indexing = Indexing(connection)
    upload = Upload(owner_id, name, name or "x", sha256 or None, request_id, media_type=owner_id)
    try:
        enqueued = enqueue_document(connection, upload, indexing.model_id)
        document = row(connection, "documents", enqueued.document_id)
        assert (document.owner_id, document.name) == (owner_id, name)
    except InvalidRequest:
        pass
    finally:
        savepoint.rollback()
