"""What a user asks across his documents: what is in process, what failed, and what they say."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, Request, Response
from pydantic import Field

from api.callers import Owner
from api.language import PROCESSING, Language, PreferredLanguage, explanation, spoken
from api.openapi import example, problems
from api.runtime import Runtime
from api.shapes import AfterId, Limit, Line, Shape, StoredText, Time, answer
from domain.failures import StageFailed
from domain.history import AttemptError, FinalFailure, failures
from domain.processing import ProcessingFile, processing_count, processing_files
from domain.search import models_in_use, search
from domain.statuses import DocumentStatus, VersionStatus

router = APIRouter(tags=["questions"])

FILES_SHOWN = 100
PASSAGES_SHOWN = 10  # with a chat answer


class AttemptErrorShape(Shape):
    attempt: int
    stage: VersionStatus
    failure_type: str
    failure_reason: str | None
    error_message: str
    explanation: str
    timestamp: Time

    @classmethod
    def told(cls, error: AttemptError, language: Language) -> "AttemptErrorShape":
        return cls(
            attempt=error.attempt,
            stage=error.stage,
            failure_type=error.failure_type,
            failure_reason=error.failure_reason,
            error_message=error.error_message,
            explanation=explanation(language, error.failure_type, error.failure_reason),
            timestamp=error.timestamp,
        )


class ProcessingFileShape(Shape):
    """``fileId`` is the document's id. ``lastRetryAt``: when a try after a failure last began."""

    file_id: int
    name: str
    current_stage: VersionStatus
    previous_stage: VersionStatus | None
    retry_count: int
    max_retry: int
    remaining_retry: int
    created_at: Time
    last_retry_at: Time | None
    next_retry_at: Time | None
    errors: list[AttemptErrorShape]

    @classmethod
    def told(cls, file: ProcessingFile, language: Language) -> "ProcessingFileShape":
        return cls(
            file_id=file.file_id,
            name=file.name,
            current_stage=file.current_stage,
            previous_stage=file.previous_stage,
            retry_count=file.retry_count,
            max_retry=file.max_retry,
            remaining_retry=file.remaining_retry,
            created_at=file.created_at,
            last_retry_at=file.last_retry_at,
            next_retry_at=file.next_retry_at,
            errors=[AttemptErrorShape.told(error, language) for error in file.errors],
        )


class ProcessingPage(Shape):
    """The oldest first, 100 at most; ``processingCount`` counts all."""

    processing_files: list[ProcessingFileShape]
    processing_count: int


class FailureShape(Shape):
    """``documentStatus`` is what the document is now: it may have been retried, replaced or deleted since."""

    id: int
    document_id: int
    document_status: DocumentStatus
    name: str
    version_id: int
    version_no: int
    job_id: int
    stage: VersionStatus
    failure_type: str
    retry_count: int
    errors: list[AttemptErrorShape]
    final_failed_at: Time

    @classmethod
    def told(cls, failure: FinalFailure, language: Language) -> "FailureShape":
        return cls(
            id=failure.id,
            document_id=failure.document_id,
            document_status=failure.document_status,
            name=failure.name,
            version_id=failure.version_id,
            version_no=failure.version_no,
            job_id=failure.job_id,
            stage=failure.stage,
            failure_type=failure.failure_type,
            retry_count=failure.retry_count,
            errors=[AttemptErrorShape.told(error, language) for error in failure.errors],
            final_failed_at=failure.final_failed_at,
        )


class FailurePage(Shape):
    """``next``: ask again with it as ``after``; null on the last page."""

    failures: list[FailureShape]
    next: int | None


class Query(Shape):
    query: Annotated[StoredText, Field(max_length=10_000)]
    limit: Annotated[int, Field(strict=True, ge=1, le=100)] = 10


class PassageShape(Shape):
    """``score``: cosine similarity, from -1 to 1; scores of different models do not compare."""

    document_id: int
    version_id: int
    version_no: int
    name: str
    chunk_no: int
    page_no: int | None
    text: str
    score: float
    model_name: str


class Found(Shape):
    """``modelsNotAsked``: models that passages of the caller were made by and that could not be asked now."""

    passages: list[PassageShape]
    models_not_asked: list[str]


class SearchAnswer(Found):
    processing_files: list[ProcessingFileShape]
    processing_count: int


class ChatMessage(Shape):
    session_id: Line
    message: Annotated[StoredText, Field(max_length=10_000)]


class ChatProcessing(Found):
    status: Literal["processing"] = "processing"
    message: str
    processing_files: list[ProcessingFileShape]
    processing_count: int


class ChatAnswered(Found):
    status: Literal["answered"] = "answered"


AN_ERROR: dict[str, Any] = {
    "attempt": 1,
    "stage": "EMBEDDING",
    "failureType": "EMBEDDING_PROVIDER_UNAVAILABLE",
    "failureReason": "RATE_LIMITED",
    "errorMessage": "429 Too Many Requests",
    "explanation": "임베딩 서비스의 요청 한도를 넘었습니다.",
    "timestamp": "2026-11-30T10:00:25Z",
}
A_FILE: dict[str, Any] = {
    "fileId": 5,
    "name": "환불 정책.pdf",
    "currentStage": "EMBEDDING",
    "previousStage": "CHUNKING",
    "retryCount": 1,
    "maxRetry": 3,
    "remainingRetry": 2,
    "createdAt": "2026-11-30T09:59:59Z",
    "lastRetryAt": None,
    "nextRetryAt": "2026-11-30T10:00:35Z",
    "errors": [AN_ERROR],
}
A_FAILURE: dict[str, Any] = {
    "id": 2,
    "documentId": 5,
    "documentStatus": "FAILED",
    "name": "환불 정책.pdf",
    "versionId": 9,
    "versionNo": 1,
    "jobId": 7,
    "stage": "EMBEDDING",
    "failureType": "EMBEDDING_PROVIDER_UNAVAILABLE",
    "retryCount": 3,
    "errors": [AN_ERROR],
    "finalFailedAt": "2026-11-30T10:02:00Z",
}
A_PASSAGE: dict[str, Any] = {
    "documentId": 5,
    "versionId": 9,
    "versionNo": 1,
    "name": "환불 정책.pdf",
    "chunkNo": 0,
    "pageNo": 1,
    "text": "환불은 14일 안에 신청합니다.",
    "score": 0.83,
    "modelName": "local:use-multilingual-v3",
}
FOUND: dict[str, Any] = {"passages": [A_PASSAGE], "modelsNotAsked": []}


@router.get(
    "/processing-files",
    response_model=ProcessingPage,
    responses=problems() | {200: example({"processingFiles": [A_FILE], "processingCount": 1})},
)
def files_in_process(request: Request, owner_id: Owner, language: PreferredLanguage) -> Response:
    """The caller's unfinished documents: waiting, running or to be retried."""
    files, count = unfinished(Runtime.of(request), owner_id, language)
    return answer(ProcessingPage(processing_files=files, processing_count=count), headers=spoken(language))


@router.get(
    "/failures",
    response_model=FailurePage,
    responses=problems() | {200: example({"failures": [A_FAILURE], "next": None})},
)
def final_failures(
    request: Request, owner_id: Owner, language: PreferredLanguage, limit: Limit = 50, after: AfterId = None
) -> Response:
    """The caller's final failures, the newest first, each with the error of every attempt."""
    found = Runtime.of(request).database.run(
        lambda connection: failures(connection, owner_id, limit=limit + 1, after=after)
    )
    page = FailurePage(
        failures=[FailureShape.told(one, language) for one in found[:limit]],
        next=found[limit - 1].id if len(found) > limit else None,
    )
    return answer(page, headers=spoken(language))


@router.post(
    "/search",
    response_model=SearchAnswer,
    responses=problems() | {200: example(FOUND | {"processingFiles": [], "processingCount": 0})},
)
def ask(
    request: Request,
    owner_id: Owner,
    language: PreferredLanguage,
    body: Annotated[
        Query, Body(openapi_examples={"a question": {"value": {"query": "환불은 언제까지 신청하나요?", "limit": 5}}})
    ],
) -> Response:
    """The nearest passages of the caller's current versions, and his files that are still in process."""
    runtime = Runtime.of(request)
    found = passages(runtime, owner_id, body.query, body.limit)
    files, count = unfinished(runtime, owner_id, language)
    shape = SearchAnswer(
        passages=found.passages,
        models_not_asked=found.models_not_asked,
        processing_files=files,
        processing_count=count,
    )
    return answer(shape, headers=spoken(language))


@router.post(
    "/chat",
    response_model=ChatProcessing | ChatAnswered,
    responses=problems()
    | {
        200: {
            "description": "Passages to answer from; while files are in process, only of what is searchable already",
            "content": {
                "application/json": {
                    "examples": {
                        "processing": {
                            "value": FOUND
                            | {
                                "status": "processing",
                                "message": PROCESSING["ko"],
                                "processingFiles": [A_FILE],
                                "processingCount": 1,
                            }
                        },
                        "answered": {"value": FOUND | {"status": "answered"}},
                    }
                }
            },
        }
    },
)
def chat(
    request: Request,
    owner_id: Owner,
    language: PreferredLanguage,
    body: Annotated[
        ChatMessage,
        Body(openapi_examples={"a message": {"value": {"sessionId": "s-1", "message": "환불은 언제까지 신청하나요?"}}}),
    ],
) -> Response:
    """Passages to answer a chat message from; says so while files of the caller are in process."""
    runtime = Runtime.of(request)
    # First the files: one that is finished in between is then searched, and not lost from both lists.
    files, count = unfinished(runtime, owner_id, language)
    found = passages(runtime, owner_id, body.message, PASSAGES_SHOWN)
    if count == 0:
        answered = ChatAnswered(passages=found.passages, models_not_asked=found.models_not_asked)
        return answer(answered, headers=spoken(language))
    shape = ChatProcessing(
        message=PROCESSING[language],
        processing_files=files,
        processing_count=count,
        passages=found.passages,
        models_not_asked=found.models_not_asked,
    )
    return answer(shape, headers=spoken(language))


def unfinished(runtime: Runtime, owner_id: str, language: Language) -> tuple[list[ProcessingFileShape], int]:
    files = runtime.database.run(lambda connection: processing_files(connection, owner_id, FILES_SHOWN))
    count = len(files)
    if count == FILES_SHOWN:
        count = runtime.database.run(lambda connection: processing_count(connection, owner_id))
    return [ProcessingFileShape.told(file, language) for file in files], count


def passages(runtime: Runtime, owner_id: str, query: str, limit: int) -> Found:
    """Embed the query once for each model in use, with no transaction open, then search."""
    queries: dict[int, list[float]] = {}
    not_asked: list[str] = []
    for model in runtime.database.run(lambda connection: models_in_use(connection, owner_id)):
        try:
            embedder = runtime.embedders.of(model)
            if embedder is None:
                not_asked.append(model.name)
            else:
                queries[model.id] = embedder.embed_query(query).tolist()
        except StageFailed:  # its provider is away, or refuses this text
            not_asked.append(model.name)
    found = runtime.database.run(lambda connection: search(connection, owner_id, queries, limit))
    return Found(passages=[PassageShape.of(passage) for passage in found], models_not_asked=not_asked)
