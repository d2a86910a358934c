"""A worker in any language: it registers once per start, and claims jobs that it begins at once."""

from datetime import timedelta
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Body, Depends, Request, Response
from pydantic import Field

from api.callers import require_admin
from api.openapi import example, problems
from api.runtime import Runtime
from api.shapes import Id, Line, Shape, Time, answer
from domain.begin import StageRun
from domain.claim import claim_and_begin
from domain.statuses import Task, VersionStatus
from domain.workers import register_worker

router = APIRouter(prefix="/admin", tags=["workers"], dependencies=[Depends(require_admin)])


class NewWorker(Shape):
    name: Line


class Registered(Shape):
    worker_id: int


class ClaimRequest(Shape):
    worker_id: Id
    limit: Annotated[int, Field(strict=True, ge=1, le=100)] = 1
    tasks: Annotated[list[Task], Field(min_length=1, max_length=10, default_factory=lambda: list(Task))]


class ModelShape(Shape):
    name: str
    dimensions: int


class ClaimShape(Shape):
    """A job that is the caller's until ``leaseExpiresAt``; ``claimToken`` proves it."""

    job_id: int
    attempt_id: int
    attempt_no: int
    claim_token: UUID
    lease_expires_at: Time
    document_id: int
    version_id: int
    name: str
    stage: VersionStatus
    storage_uri: str
    media_type: str | None
    content_sha256: str | None
    size_bytes: int | None
    model: ModelShape
    retry_count: int
    max_retry_count: int

    @classmethod
    def of_run(cls, run: StageRun) -> "ClaimShape":
        return cls(
            job_id=run.claim.job_id,
            attempt_id=run.claim.attempt_id,
            attempt_no=run.attempt_no,
            claim_token=run.claim.token,
            lease_expires_at=run.lease_expires_at,
            document_id=run.document_id,
            version_id=run.version_id,
            name=run.name,
            stage=run.stage,
            storage_uri=run.storage_uri,
            media_type=run.media_type,
            content_sha256=run.content_sha256,
            size_bytes=run.size_bytes,
            model=ModelShape(name=run.model.name, dimensions=run.model.dimensions),
            retry_count=run.retry_count,
            max_retry_count=run.max_retry_count,
        )


class Claims(Shape):
    claims: list[ClaimShape]


A_CLAIM: dict[str, Any] = {
    "jobId": 7,
    "attemptId": 12,
    "attemptNo": 1,
    "claimToken": "0b6c3f0e-3f5b-4c1c-9d55-0a6c5d9b9a10",
    "leaseExpiresAt": "2026-11-30T10:00:30.123456Z",
    "documentId": 5,
    "versionId": 9,
    "name": "환불 정책.pdf",
    "stage": "PARSING",
    "storageUri": "file:///var/lib/holdfast/documents/9f/9f86…",
    "mediaType": None,
    "contentSha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "sizeBytes": 48213,
    "model": {"name": "local:use-multilingual-v3", "dimensions": 512},
    "retryCount": 0,
    "maxRetryCount": 3,
}


@router.post(
    "/workers",
    response_model=Registered,
    responses=problems() | {200: example({"workerId": 3})},
)
def register(
    request: Request,
    body: Annotated[NewWorker, Body(openapi_examples={"a worker": {"value": {"name": "go-parser-1"}}})],
) -> Response:
    """Register a start of a worker. A restarted one registers again: its old claims end with their leases."""
    # It serves no queue: what Celery's workers can soon begin is not counted with it.
    worker_id = Runtime.of(request).database.run(lambda connection: register_worker(connection, body.name, [], 1))
    return answer(Registered(worker_id=worker_id))


@router.post(
    "/indexing-jobs/claim",
    response_model=Claims,
    responses=problems("NOT_FOUND") | {200: example({"claims": [A_CLAIM]})},
)
def claim(
    request: Request,
    body: Annotated[
        ClaimRequest,
        Body(openapi_examples={"one job": {"value": {"workerId": 3, "limit": 1, "tasks": ["parse", "embed"]}}}),
    ],
) -> Response:
    """Claim due jobs, each begun and leased for ``LEASE_SECONDS``: renew it with `extend`, every sixth of it.

    Repeating the call claims others: what an answer that was lost had claimed ends with its lease, and is retried.
    """
    runtime = Runtime.of(request)
    lease = timedelta(seconds=runtime.settings.lease_seconds)
    runs = runtime.database.run(
        lambda connection: claim_and_begin(connection, body.worker_id, body.limit, body.tasks, lease)
    )
    return answer(Claims(claims=[ClaimShape.of_run(run) for run in runs]))
