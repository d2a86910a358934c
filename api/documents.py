"""A user's documents: uploaded, looked at, retried, cancelled, deleted. Another user's are 404."""

from datetime import timedelta
from typing import Annotated, Any

import anyio.to_thread
from fastapi import APIRouter, Depends, Header, Request, Response

from api.callers import Owner
from api.language import Language, PreferredLanguage, explanation, spoken
from api.openapi import example, problems
from api.problems import Problem
from api.runtime import Runtime
from api.shapes import AfterId, Limit, PathId, Shape, Time, answer
from api.upload import UploadForm, given_name, receive_upload, safe_file_name
from domain.cancel import cancel_document
from domain.delete import delete_document
from domain.enqueue import Enqueued, Upload, enqueue_document
from domain.progress import JobState, LastError, VersionProgress
from domain.retry import retry_document
from domain.statuses import DocumentStatus, VersionStatus
from domain.views import DocumentView, document_view, list_documents

router = APIRouter(prefix="/documents", tags=["documents"])


async def named_document(documentId: PathId) -> int:  # noqa: N803 - as the path names it
    return documentId


NamedDocument = Annotated[int, Depends(named_document)]


class Accepted(Shape):
    document_id: int
    version_id: int
    version_no: int
    job_id: int | None
    unchanged: bool


class SearchableShape(Shape):
    version_id: int
    version_no: int
    indexed_at: Time
    chunk_count: int


class ErrorShape(Shape):
    """``explanation`` is for the document's owner, ``errorMessage`` for the operator."""

    failure_type: str
    failure_reason: str | None
    explanation: str
    error_message: str
    failed_at: Time

    @classmethod
    def told(cls, error: LastError, language: Language) -> "ErrorShape":
        return cls(
            failure_type=error.failure_type,
            failure_reason=error.failure_reason,
            explanation=explanation(language, error.failure_type, error.failure_reason),
            error_message=error.error_message,
            failed_at=error.failed_at,
        )


class ProgressShape(Shape):
    """``attempt`` n of ``maxAttempts`` m. ``chunksEmbedded`` and ``chunksTotal`` are null until the text is chunked."""

    version_id: int
    version_no: int
    status: VersionStatus
    stage: VersionStatus
    job_id: int
    state: JobState | None
    attempt: int
    max_attempts: int
    chunks_embedded: int | None
    chunks_total: int | None
    queued_since: Time | None
    next_retry_at: Time | None
    stage_started_at: Time | None
    last_error: ErrorShape | None

    @classmethod
    def told(cls, progress: VersionProgress, language: Language) -> "ProgressShape":
        return cls(
            version_id=progress.version_id,
            version_no=progress.version_no,
            status=progress.status,
            stage=progress.stage,
            job_id=progress.job_id,
            state=progress.state,
            attempt=progress.attempt,
            max_attempts=progress.max_attempts,
            chunks_embedded=progress.chunks_embedded,
            chunks_total=progress.chunks_total,
            queued_since=progress.queued_since,
            next_retry_at=progress.next_retry_at,
            stage_started_at=progress.stage_started_at,
            last_error=ErrorShape.told(progress.last_error, language) if progress.last_error else None,
        )


class StageTimeShape(Shape):
    stage: VersionStatus
    finished_at: Time
    elapsed_seconds: float


class DocumentShape(Shape):
    """``searchable``: what a search finds now. ``beingBuilt``: its newest version on the way. ``stopped``: its newest
    version, where that failed or was cancelled."""

    document_id: int
    name: str
    status: DocumentStatus
    searchable: SearchableShape | None
    being_built: ProgressShape | None
    stopped: ProgressShape | None
    stage_times: list[StageTimeShape]
    created_at: Time
    updated_at: Time

    @classmethod
    def told(cls, view: DocumentView, language: Language) -> "DocumentShape":
        return cls(
            document_id=view.document_id,
            name=view.name,
            status=view.status,
            searchable=SearchableShape.of(view.searchable) if view.searchable else None,
            being_built=ProgressShape.told(view.being_built, language) if view.being_built else None,
            stopped=ProgressShape.told(view.stopped, language) if view.stopped else None,
            stage_times=[
                StageTimeShape(stage=one.stage, finished_at=one.finished_at, elapsed_seconds=one.elapsed / SECOND)
                for one in view.stage_times
            ],
            created_at=view.created_at,
            updated_at=view.updated_at,
        )


class DocumentPage(Shape):
    """``next``: ask again with it as ``after``; null on the last page."""

    documents: list[DocumentShape]
    next: int | None


class RetriedShape(Shape):
    document_id: int
    version_id: int
    job_id: int


class CancelledShape(Shape):
    document_id: int
    cancelled_jobs: list[int]


SECOND = timedelta(seconds=1)

A_DOCUMENT: dict[str, Any] = {
    "documentId": 5,
    "name": "환불 정책.pdf",
    "status": "INDEXED",
    "searchable": {"versionId": 9, "versionNo": 1, "indexedAt": "2026-11-30T10:00:25Z", "chunkCount": 12},
    "beingBuilt": {
        "versionId": 14,
        "versionNo": 2,
        "status": "EMBEDDING",
        "stage": "EMBEDDING",
        "jobId": 11,
        "state": "retry later",
        "attempt": 2,
        "maxAttempts": 4,
        "chunksEmbedded": 8,
        "chunksTotal": 13,
        "queuedSince": None,
        "nextRetryAt": "2026-11-30T11:00:35Z",
        "stageStartedAt": None,
        "lastError": {
            "failureType": "EMBEDDING_PROVIDER_UNAVAILABLE",
            "failureReason": "RATE_LIMITED",
            "explanation": "임베딩 서비스의 요청 한도를 넘었습니다.",
            "errorMessage": "429 Too Many Requests",
            "failedAt": "2026-11-30T11:00:25Z",
        },
    },
    "stopped": None,
    "stageTimes": [{"stage": "PARSING", "finishedAt": "2026-11-30T11:00:20Z", "elapsedSeconds": 0.412}],
    "createdAt": "2026-11-30T09:59:59Z",
    "updatedAt": "2026-11-30T10:00:25Z",
}

UPLOAD_BODY: dict[str, Any] = {
    "required": True,
    "content": {
        "multipart/form-data": {
            "schema": {
                "type": "object",
                "required": ["file"],
                "properties": {
                    "file": {"type": "string", "contentMediaType": "application/octet-stream"},
                    "name": {
                        "type": "string",
                        "minLength": 1,
                        "maxLength": 1024,
                        "description": "what you call it; default: the file's name. The same name is a new version",
                    },
                    "force": {
                        "type": "string",
                        "enum": ["true", "false"],
                        "description": "index unchanged bytes again",
                    },
                },
            },
            "example": {"file": "환불은 14일 안에 신청합니다.", "name": "정책/환불.txt"},
        }
    },
}


@router.post(
    "",
    status_code=202,
    response_model=Accepted,
    responses=problems("REQUEST_CONFLICT", "REQUEST_TIMEOUT", "STORAGE_UNAVAILABLE", "DOCUMENT_BUSY")
    | {
        202: example(
            {"documentId": 5, "versionId": 9, "versionNo": 1, "jobId": 7, "unchanged": False},
            "Accepted: its row is committed",
        ),
        200: example(
            {"documentId": 5, "versionId": 9, "versionNo": 1, "jobId": None, "unchanged": True},
            "These bytes are, or are about to be, searched already",
        )
        | {"model": Accepted},
    },
    openapi_extra={"requestBody": UPLOAD_BODY},
)
async def upload(
    request: Request,
    owner_id: Owner,
    idempotency_key: Annotated[
        str | None, Header(min_length=1, max_length=255, description="makes the upload safe to repeat")
    ] = None,
) -> Response:
    """Upload a document. The same name is a new version; the old one stays searchable until it is complete."""
    runtime = Runtime.of(request)
    form = await receive_upload(request, runtime.store, runtime.settings.max_document_bytes, runtime.uploads)
    accepted = await anyio.to_thread.run_sync(accept, runtime, owner_id, form, idempotency_key)
    shape = Accepted.of(accepted)
    return answer(shape, 200 if accepted.unchanged else 202)


def accept(runtime: Runtime, owner_id: str, form: UploadForm, request_id: str | None) -> Enqueued:
    name = given_name(form.fields["name"]) if "name" in form.fields else safe_file_name(form.file_name)
    force = form.fields.get("force", "false")
    if force not in ("true", "false"):
        raise Problem("INVALID_REQUEST", "force is true or false")
    wanted = Upload(
        owner_id=owner_id,
        name=name,
        storage_uri=form.stored.uri,
        content_sha256=form.stored.sha256,
        request_id=request_id,
        max_retry_count=runtime.settings.max_retry_count,
        force=force == "true",
        size_bytes=form.stored.size_bytes,
    )
    model_id = runtime.embedders.model_id()
    accepted = runtime.database.run(lambda connection: enqueue_document(connection, wanted, model_id))
    if accepted.job_id is not None:
        runtime.hints.of_work()
    return accepted


@router.get(
    "",
    response_model=DocumentPage,
    responses=problems() | {200: example({"documents": [A_DOCUMENT], "next": None})},
)
def documents(
    request: Request, owner_id: Owner, language: PreferredLanguage, limit: Limit = 50, after: AfterId = None
) -> Response:
    """The caller's documents, the newest first, without the deleted ones."""
    views = Runtime.of(request).database.run(
        lambda connection: list_documents(connection, owner_id, limit=limit + 1, after=after)
    )
    page = DocumentPage(
        documents=[DocumentShape.told(view, language) for view in views[:limit]],
        next=views[limit - 1].document_id if len(views) > limit else None,
    )
    return answer(page, headers=spoken(language))


@router.get(
    "/{documentId}",
    response_model=DocumentShape,
    responses=problems("NOT_FOUND") | {200: example(A_DOCUMENT)},
)
def document(request: Request, owner_id: Owner, document_id: NamedDocument, language: PreferredLanguage) -> Response:
    """One document: what of it is searchable, what is being built, how far it is, and why it failed."""
    view = Runtime.of(request).database.run(lambda connection: document_view(connection, document_id, owner_id))
    return answer(DocumentShape.told(view, language), headers=spoken(language))


@router.delete(
    "/{documentId}",
    status_code=204,
    responses=problems("NOT_FOUND", "DOCUMENT_BUSY") | {204: {"description": "Deleted, now or before"}},
)
def delete(request: Request, owner_id: Owner, document_id: NamedDocument) -> Response:
    """Delete the document with its content; from the answer on no search finds it. May be repeated."""
    Runtime.of(request).database.run(lambda connection: delete_document(connection, document_id, owner_id))
    return Response(status_code=204)


@router.post(
    "/{documentId}/retry",
    status_code=202,
    response_model=RetriedShape,
    responses=problems("NOT_FOUND", "NOT_RETRYABLE")
    | {202: example({"documentId": 5, "versionId": 14, "jobId": 15}, "The version has a new job")},
)
def retry(request: Request, owner_id: Owner, document_id: NamedDocument) -> Response:
    """Try the newest version again, FAILED or CANCELLED, from the stage where it stopped."""
    runtime = Runtime.of(request)
    retried = runtime.database.run(lambda connection: retry_document(connection, document_id, owner_id))
    runtime.hints.of_work()
    return answer(RetriedShape.of(retried), 202)


@router.post(
    "/{documentId}/cancel",
    response_model=CancelledShape,
    responses=problems("NOT_FOUND", "NOTHING_TO_CANCEL", "DOCUMENT_BUSY")
    | {200: example({"documentId": 5, "cancelledJobs": [11]})},
)
def cancel(request: Request, owner_id: Owner, document_id: NamedDocument) -> Response:
    """Cancel what is being built; what is searchable stays so."""
    cancelled = Runtime.of(request).database.run(lambda connection: cancel_document(connection, document_id, owner_id))
    return answer(CancelledShape(document_id=document_id, cancelled_jobs=cancelled))
