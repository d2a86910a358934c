"""Storing what a stage made: the output and the step to the next stage together, or neither."""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import numpy
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError, IntegrityError

from domain.begin import begin_stage
from domain.cancel import cancel_document
from domain.claim import DISPATCH_LEASE, ClaimedJob
from domain.errors import AttemptConflict, AttemptNotCurrent, ClaimLost, InvalidRequest, NotFound
from domain.held import Claim
from domain.record import (
    load_chunks_without_embedding,
    load_parsed,
    record_chunks,
    record_embeddings,
    record_parsed,
)
from domain.release import release_attempt
from domain.statuses import Task, VersionStatus
from tests.domain.indexing import Indexing, Passage, Text
from tests.domain.rows import column, count, dump, embeddings, events, last_event, one, other_token, row

SHA256 = "0" * 62 + "30"  # of Indexing.upload
KOREAN = "안녕하세요. 😀 반갑습니다.\nSecond page\there."


def passages(text: str, size: int) -> list[Passage]:
    return [
        Passage(text[start : start + size], start, min(start + size, len(text)), 1, 2)
        for start in range(0, len(text), size)
        if text[start : start + size].strip()
    ]


def test_the_parsed_text_is_stored_with_the_step_to_chunking(indexing: Indexing, connection: Connection) -> None:
    uploaded = indexing.upload()
    claimed = indexing.bring_to(VersionStatus.PARSING)
    before = last_event(connection)
    parsed = Text(KOREAN, (0, 17), "제목 %s", {"author": "김", "pages": "2"}, "application/pdf")
    record_parsed(connection, claimed.claim, parsed, SHA256, 99)

    stored = one(connection, "SELECT row_to_json(p) FROM parsed_texts p")
    version = row(connection, "document_versions", uploaded.version_id)
    assert stored == {
        "version_id": uploaded.version_id,
        "text": KOREAN,
        "page_starts": [0, 17],
        "title": "제목 %s",
        "metadata": {"author": "김", "pages": "2"},
    }
    assert (version.status, version.media_type, version.size_bytes) == ("CHUNKING", "application/pdf", 99)
    assert events(connection, uploaded.document_id, before) == ["PARSING_COMPLETED"]
    loaded = load_parsed(connection, uploaded.version_id)
    assert (loaded.text, loaded.page_starts, loaded.media_type) == (KOREAN, (0, 17), "application/pdf")
    indexing.check_commit()


def test_the_hash_is_learned_when_the_bytes_are_first_read_and_then_fixed(
    indexing: Indexing, connection: Connection
) -> None:
    indexing.upload()
    claimed = indexing.bring_to(VersionStatus.PARSING)
    with connection.begin_nested() as savepoint:
        with pytest.raises(IntegrityError, match="keeps what it was made from"):
            record_parsed(connection, claimed.claim, Text("text"), "f" * 64, 4)
        savepoint.rollback()
    assert count(connection, "parsed_texts") == 0


def test_chunks_are_stored_in_their_order_with_the_step_to_embedding(
    indexing: Indexing, connection: Connection
) -> None:
    uploaded = indexing.upload()
    claimed = indexing.bring_to(VersionStatus.PARSING)
    record_parsed(connection, claimed.claim, Text(KOREAN), SHA256, 99)
    made = [replace(passage, page_no=None if index else 3) for index, passage in enumerate(passages(KOREAN, 7))]
    before = last_event(connection)
    record_chunks(connection, claimed.claim, made)

    stored = connection.exec_driver_sql("SELECT * FROM chunks ORDER BY chunk_no").all()
    assert [chunk.chunk_no for chunk in stored] == list(range(len(made)))
    assert [(c.text, c.char_start, c.char_end, c.page_no, c.token_count) for c in stored] == [
        (c.text, c.char_start, c.char_end, c.page_no, c.token_count) for c in made
    ]
    assert [chunk.text_sha256 for chunk in stored] == [hashlib.sha256(c.text.encode()).hexdigest() for c in made]
    assert row(connection, "document_versions", uploaded.version_id).chunk_count == len(made)
    assert row(connection, "document_versions", uploaded.version_id).status == "EMBEDDING"
    assert events(connection, uploaded.document_id, before) == ["CHUNKING_COMPLETED"]
    indexing.check_commit()


def test_after_its_chunks_an_attempt_waits_for_embed_like_a_fresh_claim(
    indexing: Indexing, connection: Connection
) -> None:
    indexing.upload()
    claimed = indexing.bring_to(VersionStatus.CHUNKING)
    indexing.chunk(claimed.claim, ["first passage ", "second passage"])
    job = row(connection, "embedding_jobs", claimed.claim.job_id)
    attempt = row(connection, "indexing_attempts", claimed.claim.attempt_id)
    left = job.lease_expires_at - one(connection, "SELECT clock_timestamp()")
    assert (job.status, job.task, job.claim_token) == ("PROCESSING", "embed", claimed.claim.token)
    assert (attempt.status, attempt.stage_started_at) == ("STARTED", None)
    assert DISPATCH_LEASE - timedelta(minutes=1) < left <= DISPATCH_LEASE
    indexing.check_commit()


def test_offsets_that_do_not_span_their_text_are_refused_and_nothing_is_stored(
    indexing: Indexing, connection: Connection
) -> None:
    indexing.upload()
    claimed = indexing.bring_to(VersionStatus.CHUNKING)
    with connection.begin_nested() as savepoint:
        with pytest.raises(IntegrityError, match="chunks_offsets_span_the_text"):
            record_chunks(connection, claimed.claim, [Passage("first", 0, 5, 1, 1), Passage("x", 5, 7, 1, 1)])
        savepoint.rollback()
    assert count(connection, "chunks") == 0


def test_no_chunks_are_no_step(indexing: Indexing, connection: Connection) -> None:
    indexing.upload()
    claimed = indexing.bring_to(VersionStatus.CHUNKING)
    with pytest.raises(IntegrityError, match="has no chunks to embed"):
        record_chunks(connection, claimed.claim, [])


def test_ten_thousand_chunks_are_stored_in_one_statement(indexing: Indexing, connection: Connection) -> None:
    indexing.upload()
    claimed = indexing.bring_to(VersionStatus.PARSING)
    text = "".join(f"{number:05}" for number in range(10_000))
    record_parsed(connection, claimed.claim, Text(text), SHA256, 99)
    record_chunks(connection, claimed.claim, passages(text, 5))
    assert count(connection, "chunks") == one(connection, "SELECT chunk_count FROM document_versions") == 10_000
    indexing.check_commit()


def to_embed(indexing: Indexing, number: int = 3) -> tuple[ClaimedJob, list[int]]:
    indexing.upload()
    claimed = indexing.bring_to(VersionStatus.EMBEDDING, [f"passage {index}" for index in range(number)])
    return claimed, [chunk.id for chunk in load_chunks_without_embedding(indexing.connection, claimed.version_id)]


def test_the_last_batch_of_embeddings_is_stored_with_the_step_to_storing(
    indexing: Indexing, connection: Connection
) -> None:
    claimed, ids = to_embed(indexing)
    before = last_event(connection)
    assert record_embeddings(connection, claimed.claim, ids[:2], [[1, 2, 3], [4, 5, 6]]) is False
    assert row(connection, "document_versions", claimed.version_id).status == "EMBEDDING"
    assert [chunk.id for chunk in load_chunks_without_embedding(connection, claimed.version_id)] == ids[2:]
    assert record_embeddings(connection, claimed.claim, ids[2:], numpy.array([[7, 8, 9]], dtype="float32")) is True
    assert row(connection, "document_versions", claimed.version_id).status == "STORING"
    assert column(connection, "SELECT embedding::text FROM embeddings ORDER BY chunk_id") == [
        "[1,2,3]",
        "[4,5,6]",
        "[7,8,9]",
    ]
    assert events(connection, claimed.document_id, before) == ["EMBEDDING_COMPLETED"]
    indexing.check_commit()


def test_a_batch_that_comes_again_is_stored_once(indexing: Indexing, connection: Connection) -> None:
    claimed, ids = to_embed(indexing)
    for _ in range(5):
        assert record_embeddings(connection, claimed.claim, ids[:2], [[1, 2, 3], [4, 5, 6]]) is False
    for _ in range(5):
        assert record_embeddings(connection, claimed.claim, ids, [[9, 9, 9]] * 3) is True
    assert embeddings(connection, claimed.version_id) == {"ACTIVE": 3}
    assert column(connection, "SELECT embedding::text FROM embeddings ORDER BY chunk_id")[0] == "[1,2,3]"
    assert row(connection, "document_versions", claimed.version_id).embedding_count == 3
    indexing.check_commit()


def test_a_chunk_that_comes_twice_in_a_batch_is_stored_once(indexing: Indexing, connection: Connection) -> None:
    claimed, ids = to_embed(indexing)
    assert record_embeddings(connection, claimed.claim, [ids[0], ids[0]], [[1, 2, 3], [1, 2, 3]]) is False
    assert embeddings(connection, claimed.version_id) == {"ACTIVE": 1}


def test_an_empty_batch_says_whether_all_is_embedded(indexing: Indexing, connection: Connection) -> None:
    indexing.upload()
    claimed = indexing.bring_to(VersionStatus.PARSING)
    assert record_embeddings(connection, claimed.claim, [], []) is False, "nothing is chunked yet"
    release_attempt(connection, claimed.claim)
    claimed = indexing.bring_to(VersionStatus.EMBEDDING)
    assert record_embeddings(connection, claimed.claim, [], []) is False
    indexing.embed(claimed)
    assert record_embeddings(connection, claimed.claim, [], numpy.empty((0, 3))) is True


@pytest.mark.parametrize(
    ("vector", "rule"),
    [
        ([1, 2], "has 2 dimensions; those of test:model-3 have 3"),
        ([1, 2, 3, 4], "has 4 dimensions; those of test:model-3 have 3"),
        ([0, 0, 0], "embeddings_not_all_zero"),
        ([float("nan"), 1, 1], "NaN"),
        ([float("inf"), 1, 1], "infinite"),
        ([1e39, 1, 1], "infinite|out of range"),
    ],
)
def test_a_vector_that_cannot_be_searched_is_refused_and_nothing_of_its_batch_is_stored(
    indexing: Indexing, connection: Connection, vector: list[float], rule: str
) -> None:
    claimed, ids = to_embed(indexing)
    with connection.begin_nested() as savepoint:
        with pytest.raises((InvalidRequest, DBAPIError), match=rule):
            record_embeddings(connection, claimed.claim, ids[:2], [[1, 2, 3], vector])
        savepoint.rollback()
    assert count(connection, "embeddings") == 0


def test_a_vector_for_a_chunk_of_another_version_is_refused(indexing: Indexing, connection: Connection) -> None:
    _, others = to_embed(indexing)
    indexing.upload("other.txt")
    claimed = indexing.bring_to(VersionStatus.EMBEDDING)
    with pytest.raises(IntegrityError, match="embeddings_chunk_is_versions_chunk"):
        record_embeddings(connection, claimed.claim, others[:1], [[1, 2, 3]])


def test_vectors_that_do_not_match_their_chunks_in_number_are_refused(
    indexing: Indexing, connection: Connection
) -> None:
    claimed, ids = to_embed(indexing)
    with pytest.raises(InvalidRequest, match="3 chunks with 2 vectors"):
        record_embeddings(connection, claimed.claim, ids, [[1, 2, 3]] * 2)
    assert count(connection, "embeddings") == 0


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=3, max_size=3))
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_vector_is_stored_to_the_last_bit(connection: Connection, vector: list[float]) -> None:
    if numpy.linalg.norm(numpy.array(vector, "float64")) == 0:
        return
    savepoint = connection.begin_nested()
    claimed, ids = to_embed(Indexing(connection), 1)
    record_embeddings(connection, claimed.claim, ids, numpy.array([vector], "float32"))
    stored = one(connection, "SELECT embedding::real[] FROM embeddings")
    assert numpy.array_equal(numpy.array(stored, "float32"), numpy.array(vector, "float32"))
    savepoint.rollback()


RECORDINGS: dict[VersionStatus, Callable[[Connection, Claim], object]] = {
    VersionStatus.PARSING: lambda c, claim: record_parsed(c, claim, Text("text"), SHA256, 4),
    VersionStatus.CHUNKING: lambda c, claim: record_chunks(c, claim, [Passage("text", 0, 4, 1, 1)]),
    VersionStatus.EMBEDDING: lambda c, claim: record_embeddings(
        c, claim, column(c, "SELECT id FROM chunks ORDER BY id"), [[1, 2, 3]] * 2
    ),
}


@pytest.mark.parametrize("stage", RECORDINGS)
def test_a_claim_that_does_not_hold_stores_nothing(
    indexing: Indexing, connection: Connection, stage: VersionStatus
) -> None:
    uploaded = indexing.upload()
    claim = indexing.bring_to(stage).claim
    record = RECORDINGS[stage]
    before = dump(connection)
    with pytest.raises(NotFound, match="job"):
        record(connection, replace(claim, job_id=claim.job_id + 1))
    with pytest.raises(NotFound, match="attempt"):
        record(connection, replace(claim, attempt_id=claim.attempt_id + 1))
    for wrong in (replace(claim, token=other_token()), replace(claim, worker_id=claim.worker_id + 1)):
        with pytest.raises(ClaimLost, match="another worker"):
            record(connection, wrong)
    assert dump(connection) == before

    release_attempt(connection, claim)
    again = indexing.claim()
    with pytest.raises(AttemptNotCurrent, match="RELEASED"):
        record(connection, claim)
    indexing.begin(again)
    indexing.fail(again)
    with pytest.raises(AttemptConflict, match="FAILED"):
        record(connection, again.claim)
    cancel_document(connection, uploaded.document_id)
    with pytest.raises(AttemptConflict, match="FAILED"):
        record(connection, again.claim)
    assert count(connection, "embeddings") == 0


@pytest.mark.parametrize("stage", RECORDINGS)
def test_an_expired_claim_stores_nothing(indexing: Indexing, connection: Connection, stage: VersionStatus) -> None:
    indexing.upload()
    claim = indexing.bring_to(stage).claim
    release_attempt(connection, claim)
    again = indexing.claim()
    begin_stage(connection, again.claim, again.task, indexing.worker_id, timedelta(microseconds=1))
    before = dump(connection)
    with pytest.raises(ClaimLost, match="ran out"):
        RECORDINGS[stage](connection, again.claim)
    assert dump(connection) == before


@pytest.mark.parametrize("stage", [VersionStatus.PARSING, VersionStatus.CHUNKING])
def test_what_a_stage_made_is_not_stored_a_second_time(
    indexing: Indexing, connection: Connection, stage: VersionStatus
) -> None:
    indexing.upload()
    claim = indexing.bring_to(stage).claim
    RECORDINGS[stage](connection, claim)
    before = dump(connection)
    for _ in range(4):
        RECORDINGS[stage](connection, claim)
    assert dump(connection) == before


def test_nothing_is_left_to_embed_of_a_version_that_has_all_its_vectors(
    indexing: Indexing, connection: Connection
) -> None:
    indexing.upload()
    claimed = indexing.bring_to(VersionStatus.STORING)
    assert load_chunks_without_embedding(connection, claimed.version_id) == []
    assert claimed.task == Task.PARSE
