"""What a worker or an operator reads of a job: what it is, and what its next stage starts from."""

from collections.abc import Iterator
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import StreamingResponse
from sqlalchemy import Connection

from api.callers import require_admin
from api.openapi import example, problems
from api.runtime import Runtime
from api.shapes import LARGEST_INT, Limit, PathId, Shape, Time, answer
from domain.errors import NotFound
from domain.job_view import job_view
from domain.record import load_chunks_without_embedding, load_parsed
from domain.statuses import AttemptStatus, JobStatus, Outcome, Task, VersionStatus

router = APIRouter(
    prefix="/admin/indexing-jobs/{jobId:digits}", tags=["workers"], dependencies=[Depends(require_admin)]
)


async def named_job(jobId: PathId) -> int:  # noqa: N803 - as the path names it
    return jobId


NamedJob = Annotated[int, Depends(named_job)]


class AttemptShape(Shape):
    id: int
    attempt_no: int
    claimed_by: str
    run_by: str | None
    status: AttemptStatus
    started_at: Time
    stage_started_at: Time | None
    finished_at: Time | None
    failed_stage: VersionStatus | None
    failure_type: str | None
    failure_reason: str | None
    error_message: str | None
    retryable: bool | None
    outcome: Outcome | None
    retry_count: int | None
    max_retry_count: int | None
    next_retry_at: Time | None


class EventShape(Shape):
    id: int
    type: str
    stage: VersionStatus | None
    job_id: int | None
    attempt_id: int | None
    detail: dict[str, Any]
    created_at: Time


class JobShape(Shape):
    job_id: int
    version_id: int
    version_no: int
    document_id: int
    owner_id: str
    name: str
    task: Task
    status: JobStatus
    stage: VersionStatus
    attempt_no: int
    retry_count: int
    max_retry_count: int
    next_retry_at: Time | None
    due_at: Time
    worker_id: int | None
    lease_expires_at: Time | None
    last_failure_type: str | None
    last_failure_reason: str | None
    last_error_message: str | None
    last_failed_at: Time | None
    created_at: Time
    updated_at: Time
    attempts: list[AttemptShape]
    events: list[EventShape]


class TextShape(Shape):
    text: str
    page_starts: list[int]
    media_type: str


class ChunkShape(Shape):
    chunk_id: int
    chunk_no: int
    text: str
    token_count: int


class MissingChunks(Shape):
    """``next``: ask again with it as ``after``; null on the last page."""

    chunks: list[ChunkShape]
    next: int | None


AN_ATTEMPT: dict[str, Any] = {
    "id": 12,
    "attemptNo": 1,
    "claimedBy": "go-parser-1",
    "runBy": "go-parser-1",
    "status": "FAILED",
    "startedAt": "2026-11-30T10:00:00Z",
    "stageStartedAt": "2026-11-30T10:00:00.000100Z",
    "finishedAt": "2026-11-30T10:00:25Z",
    "failedStage": "EMBEDDING",
    "failureType": "EMBEDDING_PROVIDER_UNAVAILABLE",
    "failureReason": "RATE_LIMITED",
    "errorMessage": "429 Too Many Requests",
    "retryable": True,
    "outcome": "RETRY",
    "retryCount": 1,
    "maxRetryCount": 3,
    "nextRetryAt": "2026-11-30T10:00:35Z",
}
A_JOB: dict[str, Any] = {
    "jobId": 7,
    "versionId": 9,
    "versionNo": 1,
    "documentId": 5,
    "ownerId": "ann",
    "name": "환불 정책.pdf",
    "task": "embed",
    "status": "PENDING",
    "stage": "EMBEDDING",
    "attemptNo": 1,
    "retryCount": 1,
    "maxRetryCount": 3,
    "nextRetryAt": "2026-11-30T10:00:35Z",
    "dueAt": "2026-11-30T10:00:35Z",
    "workerId": None,
    "leaseExpiresAt": None,
    "lastFailureType": "EMBEDDING_PROVIDER_UNAVAILABLE",
    "lastFailureReason": "RATE_LIMITED",
    "lastErrorMessage": "429 Too Many Requests",
    "lastFailedAt": "2026-11-30T10:00:25Z",
    "createdAt": "2026-11-30T09:59:59Z",
    "updatedAt": "2026-11-30T10:00:25Z",
    "attempts": [AN_ATTEMPT],
    "events": [
        {
            "id": 31,
            "type": "FILE_UPLOADED",
            "stage": None,
            "jobId": None,
            "attemptId": None,
            "detail": {"version_no": 1},
            "createdAt": "2026-11-30T09:59:59Z",
        }
    ],
}


@router.get("", response_model=JobShape, responses=problems("NOT_FOUND") | {200: example(A_JOB)})
def job(request: Request, job_id: NamedJob) -> Response:
    """The job, its attempts and its events, the oldest first; never a claim token."""
    return answer(JobShape.of(Runtime.of(request).database.run(lambda connection: job_view(connection, job_id))))


@router.get(
    "/source",
    response_class=StreamingResponse,
    responses=problems("NOT_FOUND", "STORAGE_UNAVAILABLE")
    | {200: {"description": "The bytes", "content": {"application/octet-stream": {"example": "%PDF-1.7 …"}}}},
)
def source(request: Request, job_id: NamedJob) -> Response:
    """The uploaded bytes, for a worker that cannot reach `storageUri` itself."""
    runtime = Runtime.of(request)
    view = runtime.database.run(lambda connection: job_view(connection, job_id))
    try:
        size, pieces = runtime.store.stream(view.storage_uri)
    except ValueError:  # outside the configured store
        raise NotFound("source of job", job_id) from None
    headers = {"Content-Length": str(size), "Content-Disposition": "attachment"}
    return StreamingResponse(exactly(pieces, size), headers=headers, media_type="application/octet-stream")


def exactly(pieces: Iterator[bytes], size: int) -> Iterator[bytes]:
    """No byte more than was announced, should the file grow meanwhile."""
    for piece in pieces:
        if size <= 0:
            return
        yield piece[:size]
        size -= len(piece)


@router.get(
    "/text",
    response_model=TextShape,
    responses=problems("NOT_FOUND")
    | {200: example({"text": "환불은 14일 안에 …", "pageStarts": [0], "mediaType": "application/pdf"})},
)
def text(request: Request, job_id: NamedJob) -> Response:
    """The parsed text, where chunking starts from."""

    def read(connection: Connection) -> TextShape:
        parsed = load_parsed(connection, job_view(connection, job_id).version_id)
        return TextShape(text=parsed.text, page_starts=list(parsed.page_starts), media_type=parsed.media_type)

    return answer(Runtime.of(request).database.run(read))


@router.get(
    "/chunks",
    response_model=MissingChunks,
    responses=problems("NOT_FOUND")
    | {
        200: example(
            {
                "chunks": [{"chunkId": 40, "chunkNo": 0, "text": "환불은 14일 안에 …", "tokenCount": 9}],
                "next": None,
            }
        )
    },
)
def chunks(
    request: Request,
    job_id: NamedJob,
    limit: Limit = 100,
    after: Annotated[int | None, Query(ge=0, le=LARGEST_INT, description="`next` of the page before")] = None,
) -> Response:
    """The chunks that have no vector yet, in order: where embedding starts from, and goes on after a failure."""

    def read(connection: Connection) -> MissingChunks:
        version_id = job_view(connection, job_id).version_id
        page = load_chunks_without_embedding(connection, version_id, limit + 1, -1 if after is None else after)
        return MissingChunks(
            chunks=[
                ChunkShape(chunk_id=one.id, chunk_no=one.chunk_no, text=one.text, token_count=one.token_count)
                for one in page[:limit]
            ],
            next=page[limit - 1].chunk_no if len(page) > limit else None,
        )

    return answer(Runtime.of(request).database.run(read))
