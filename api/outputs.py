"""What a worker made, stage by stage; all within one attempt, each report with the step to the next stage."""

from collections.abc import Callable
from datetime import timedelta
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Body, Depends, Request, Response
from pydantic import Field, FiniteFloat
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from api.attempts import A_PROOF, ENDED, PATH, NamedAttempt, Proof
from api.callers import require_admin
from api.openapi import example, problems
from api.problems import invalid_output
from api.runtime import Runtime
from api.shapes import LARGEST_INT, Id, Line, Shape, Storable, StoredText, Time, answer
from domain.begin import go_on
from domain.record import (
    count_chunks_without_embedding,
    load_chunks_without_embedding,
    record_chunks,
    record_embeddings,
    record_parsed,
)
from domain.statuses import VersionStatus

T = TypeVar("T")

router = APIRouter(prefix=PATH, tags=["workers"], dependencies=[Depends(require_admin)])

Offset = Annotated[int, Field(strict=True, ge=0, le=LARGEST_INT)]
Positive = Annotated[int, Field(strict=True, ge=1, le=LARGEST_INT)]
MetadataValue = Annotated[Storable, Field(max_length=10_000)] | int | FiniteFloat | bool | None


class ParsedReport(Proof):
    """``pageStarts``: the offset of each page's first character, empty without pages."""

    text: StoredText
    page_starts: Annotated[list[Offset], Field(default_factory=list)]
    title: Line | None = None
    metadata: Annotated[dict[Line, MetadataValue], Field(max_length=200, default_factory=dict)]
    media_type: Line
    content_sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    size_bytes: Annotated[int, Field(strict=True, ge=0, le=2**53)]


class ChunkReport(Shape):
    """A passage: exactly the characters from ``charStart`` up to ``charEnd`` of the parsed text."""

    text: StoredText
    char_start: Offset
    char_end: Offset
    page_no: Positive | None = None
    token_count: Positive


class ChunksReport(Proof):
    chunks: Annotated[list[ChunkReport], Field(min_length=1)]


class EmbeddingReport(Shape):
    chunk_id: Id
    vector: Annotated[list[FiniteFloat], Field(min_length=1)]


class EmbeddingsReport(Proof):
    embeddings: Annotated[list[EmbeddingReport], Field(min_length=1, max_length=1_000)]


class StageReached(Shape):
    stage: VersionStatus
    lease_expires_at: Time


class StoredChunk(Shape):
    chunk_id: int
    chunk_no: int


class ChunksStored(StageReached):
    chunks: list[StoredChunk]


class EmbeddingsStored(StageReached):
    missing: int


def record(request: Request, work: Callable[[Connection, timedelta], T]) -> T:
    """Store an output in one transaction; what the database refuses of it is the caller's to mend.

    Raises:
        Problem: INVALID_REQUEST, with the name of the rule.
    """
    runtime = Runtime.of(request)
    lease = timedelta(seconds=runtime.settings.lease_seconds)
    try:
        return runtime.database.run(lambda connection: work(connection, lease))
    except DBAPIError as error:
        problem = invalid_output(error)
        if problem is None:
            raise
        raise problem from None


REACHED: dict[str, Any] = {"stage": "CHUNKING", "leaseExpiresAt": "2026-11-30T10:00:55.123456Z"}
OUTPUT = (*ENDED, "STAGE_NOT_CURRENT")


@router.post("/parsed", response_model=StageReached, responses=problems(*OUTPUT) | {200: example(REACHED)})
def parsed(
    request: Request,
    attempt: NamedAttempt,
    body: Annotated[
        ParsedReport,
        Body(
            openapi_examples={
                "two pages": {
                    "value": A_PROOF
                    | {
                        "text": "환불은 14일 안에 신청합니다.\n\nRefunds take five days.",
                        "pageStarts": [0, 19],
                        "title": "환불 정책",
                        "metadata": {"author": "고객 지원"},
                        "mediaType": "application/pdf",
                        "contentSha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
                        "sizeBytes": 48213,
                    }
                }
            }
        ),
    ],
) -> Response:
    """Store the text: PARSING → CHUNKING. The same text again changes nothing; another gets 409."""

    def work(connection: Connection, lease: timedelta) -> StageReached:
        record_parsed(connection, body.claim(attempt), body, body.content_sha256, body.size_bytes)
        return StageReached.of(go_on(connection, body.claim(attempt), lease))

    return answer(record(request, work))


@router.post(
    "/chunks",
    response_model=ChunksStored,
    responses=problems(*OUTPUT)
    | {200: example(REACHED | {"stage": "EMBEDDING", "chunks": [{"chunkId": 40, "chunkNo": 0}]})},
)
def chunks(
    request: Request,
    attempt: NamedAttempt,
    body: Annotated[
        ChunksReport,
        Body(
            openapi_examples={
                "one chunk": {
                    "value": A_PROOF
                    | {
                        "chunks": [
                            {
                                "text": "환불은 14일 안에 신청합니다.",
                                "charStart": 0,
                                "charEnd": 17,
                                "pageNo": 1,
                                "tokenCount": 9,
                            }
                        ]
                    }
                }
            }
        ),
    ],
) -> Response:
    """Store the chunks, in order: CHUNKING → EMBEDDING. The same attempt goes on: the answer has their ids."""

    def work(connection: Connection, lease: timedelta) -> ChunksStored:
        record_chunks(connection, body.claim(attempt), body.chunks)
        run = go_on(connection, body.claim(attempt), lease)
        missing = load_chunks_without_embedding(connection, run.version_id)
        return ChunksStored(
            stage=run.stage,
            lease_expires_at=run.lease_expires_at,
            chunks=[StoredChunk(chunk_id=chunk.id, chunk_no=chunk.chunk_no) for chunk in missing],
        )

    return answer(record(request, work))


@router.post(
    "/embeddings",
    response_model=EmbeddingsStored,
    responses=problems(*OUTPUT) | {200: example(REACHED | {"stage": "STORING", "missing": 0})},
)
def embeddings(
    request: Request,
    attempt: NamedAttempt,
    body: Annotated[
        EmbeddingsReport,
        Body(
            openapi_examples={
                "one vector": {"value": A_PROOF | {"embeddings": [{"chunkId": 40, "vector": [0.12, -0.5, 0.31]}]}}
            }
        ),
    ],
) -> Response:
    """Store a batch of vectors; with the last one EMBEDDING → STORING, and `complete` comes next.

    Each has the length of the claim's model. A chunk that has its vector already is passed over.
    """

    def work(connection: Connection, lease: timedelta) -> EmbeddingsStored:
        claim = body.claim(attempt)
        vectors = [one.vector for one in body.embeddings]
        record_embeddings(connection, claim, [one.chunk_id for one in body.embeddings], vectors)
        run = go_on(connection, claim, lease)
        missing = count_chunks_without_embedding(connection, run.version_id)
        return EmbeddingsStored(stage=run.stage, lease_expires_at=run.lease_expires_at, missing=missing)

    return answer(record(request, work))
