"""How a claimed attempt goes on and ends: every report names the claim, and may be sent again."""

from datetime import timedelta
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Body, Depends, Request, Response
from pydantic import Field

from api.callers import require_admin
from api.openapi import example, problems
from api.runtime import Runtime
from api.shapes import AnyText, Id, PathId, Shape, Time, answer
from domain.complete import complete_attempt
from domain.fail import fail_attempt
from domain.failures import Failure, FailureType
from domain.held import Claim
from domain.lease import extend_lease
from domain.release import release_attempt
from domain.statuses import AttemptStatus, Outcome, VersionStatus

PATH = "/admin/indexing-jobs/{jobId:digits}/attempts/{attemptId:digits}"
ENDED = ("NOT_FOUND", "CLAIM_MISMATCH", "LEASE_EXPIRED", "ATTEMPT_CONFLICT", "ATTEMPT_NOT_CURRENT")
A_PROOF: dict[str, Any] = {"workerId": 3, "claimToken": "0b6c3f0e-3f5b-4c1c-9d55-0a6c5d9b9a10"}

router = APIRouter(prefix=PATH, tags=["workers"], dependencies=[Depends(require_admin)])


async def named_attempt(jobId: PathId, attemptId: PathId) -> tuple[int, int]:  # noqa: N803 - as the path names them
    return jobId, attemptId


NamedAttempt = Annotated[tuple[int, int], Depends(named_attempt)]


class Proof(Shape):
    """What proves that the caller holds the job."""

    worker_id: Id
    claim_token: UUID

    def claim(self, attempt: tuple[int, int]) -> Claim:
        return Claim(attempt[0], attempt[1], self.worker_id, self.claim_token)


class FailureReport(Proof):
    failure_type: FailureType
    error_message: AnyText
    failure_reason: Annotated[str | None, Field(pattern="^[A-Z][A-Z0-9_]{0,62}$")] = None
    retry_after_seconds: Annotated[float | None, Field(ge=0, le=86_400, allow_inf_nan=False)] = None


class FailureResult(Shape):
    """The frozen result: the same bytes on every replay, whatever happened since."""

    job_id: int
    attempt_id: int
    attempt_no: int
    status: AttemptStatus
    failed_stage: VersionStatus
    failure_type: FailureType
    error_message: str
    retryable: bool
    outcome: Outcome
    retry_count: int
    max_retry_count: int
    next_retry_at: Time | None
    failed_at: Time


class Completion(Shape):
    job_id: int
    attempt_id: int
    attempt_no: int
    document_id: int
    version_id: int
    version_no: int
    current: bool
    indexed_at: Time


class Extended(Shape):
    lease_expires_at: Time


class Released(Shape):
    job_id: int
    attempt_id: int
    status: AttemptStatus


@router.post(
    "/fail",
    response_model=FailureResult,
    responses=problems(*ENDED)
    | {
        200: example(
            {
                "jobId": 7,
                "attemptId": 12,
                "attemptNo": 1,
                "status": "FAILED",
                "failedStage": "EMBEDDING",
                "failureType": "EMBEDDING_PROVIDER_UNAVAILABLE",
                "errorMessage": "429 Too Many Requests",
                "retryable": True,
                "outcome": "RETRY",
                "retryCount": 1,
                "maxRetryCount": 3,
                "nextRetryAt": "2026-11-30T10:00:35.000000Z",
                "failedAt": "2026-11-30T10:00:25.000000Z",
            }
        )
    },
)
def fail(
    request: Request,
    attempt: NamedAttempt,
    body: Annotated[
        FailureReport,
        Body(
            openapi_examples={
                "the provider is away": {
                    "value": A_PROOF
                    | {"failureType": "EMBEDDING_PROVIDER_UNAVAILABLE", "errorMessage": "429 Too Many Requests"}
                },
                "with reason and pause": {
                    "value": A_PROOF
                    | {
                        "failureType": "EMBEDDING_PROVIDER_UNAVAILABLE",
                        "errorMessage": "429 Too Many Requests",
                        "failureReason": "RATE_LIMITED",
                        "retryAfterSeconds": 30,
                    }
                },
            }
        ),
    ],
) -> Response:
    """Report that the attempt failed. Whether and when it is retried, the policy's rows decide, once.

    The same report again (worker, token, type and cleaned message) gets the stored result; any other gets 409.
    """
    runtime = Runtime.of(request)
    pause = timedelta(seconds=body.retry_after_seconds) if body.retry_after_seconds is not None else None
    failure = Failure(body.failure_type, body.error_message, body.failure_reason, pause)
    result = runtime.database.run(
        lambda connection: fail_attempt(connection, body.claim(attempt), failure, runtime.settings.secrets)
    )
    if result.outcome == Outcome.FAILED:
        runtime.hints.of_news()
    elif result.next_retry_at is not None and result.next_retry_at <= result.failed_at:
        runtime.hints.of_work()
    return answer(FailureResult.of(result))


@router.post(
    "/complete",
    response_model=Completion,
    responses=problems(*ENDED, "VERSION_INCOMPLETE")
    | {
        200: example(
            {
                "jobId": 7,
                "attemptId": 12,
                "attemptNo": 1,
                "documentId": 5,
                "versionId": 9,
                "versionNo": 1,
                "current": True,
                "indexedAt": "2026-11-30T10:00:25.000000Z",
            }
        )
    },
)
def complete(
    request: Request,
    attempt: NamedAttempt,
    body: Annotated[Proof, Body(openapi_examples={"the claim": {"value": A_PROOF}})],
) -> Response:
    """Complete the job: the version becomes the one that is searched, unless a newer one is already."""
    runtime = Runtime.of(request)
    result = runtime.database.run(lambda connection: complete_attempt(connection, body.claim(attempt)))
    runtime.hints.of_news()
    return answer(Completion.of(result))


@router.post(
    "/extend",
    response_model=Extended,
    responses=problems(*ENDED) | {200: example({"leaseExpiresAt": "2026-11-30T10:00:55.123456Z"})},
)
def extend(
    request: Request,
    attempt: NamedAttempt,
    body: Annotated[Proof, Body(openapi_examples={"the claim": {"value": A_PROOF}})],
) -> Response:
    """Renew the lease. A worker that cannot renew for a whole lease must stop: the job is another's by then."""
    runtime = Runtime.of(request)
    lease = timedelta(seconds=runtime.settings.lease_seconds)
    until = runtime.database.run(lambda connection: extend_lease(connection, body.claim(attempt), lease))
    return answer(Extended(lease_expires_at=until))


@router.post(
    "/release",
    response_model=Released,
    responses=problems(*ENDED) | {200: example({"jobId": 7, "attemptId": 12, "status": "RELEASED"})},
)
def release(
    request: Request,
    attempt: NamedAttempt,
    body: Annotated[Proof, Body(openapi_examples={"the claim": {"value": A_PROOF}})],
) -> Response:
    """Give the job back unharmed, as at a shutdown: due now, and no retry is counted."""
    runtime = Runtime.of(request)
    runtime.database.run(lambda connection: release_attempt(connection, body.claim(attempt)))
    runtime.hints.of_work()
    return answer(Released(job_id=attempt[0], attempt_id=attempt[1], status=AttemptStatus.RELEASED))
