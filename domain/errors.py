"""What the domain raises when a caller asks for what a rule forbids.

DomainError
├── InvalidRequest       an argument is not acceptable: the message says which and why
├── NotFound             no such job, attempt, version or document
├── ClaimLost            the caller does not hold the job: reason "mismatch" or "expired"
├── StageNotDue          the claim holds, but this stage has begun already or belongs to the other task
├── StageNotCurrent      the version is in another stage than the one that was reported
├── AttemptConflict      the attempt already ended INDEXED, or FAILED in another way
├── AttemptNotCurrent    the attempt was released or cancelled
├── VersionIncomplete    not every chunk of the version has its embedding
├── RequestConflict      the request id was used before, for other content
├── NotRetryable         this version cannot be retried: the message says why
├── NothingToCancel      the document has no live job
└── DocumentBusy         the document kept changing under a whole-document operation; try again
"""

from typing import Literal


class DomainError(Exception):
    """A rule of the domain was broken by the caller; nothing was written."""


class InvalidRequest(DomainError):
    """An argument is not acceptable."""


class NotFound(DomainError):
    """No such row, or not the caller's."""

    def __init__(self, what: str, identity: object) -> None:
        super().__init__(f"{what} {identity} does not exist")


class ClaimLost(DomainError):
    """Another worker, or nobody, holds this job now."""

    def __init__(self, job_id: int, reason: Literal["mismatch", "expired"]) -> None:
        why = "its lease ran out" if reason == "expired" else "another worker, or nobody, holds it"
        super().__init__(f"job {job_id} is no longer held by this claim: {why}")
        self.job_id = job_id
        self.reason = reason


class StageNotDue(DomainError):
    """The claim holds, but this stage has begun already or belongs to the other task."""

    def __init__(self, job_id: int, task: str, why: str) -> None:
        super().__init__(f"job {job_id} has nothing for task {task} to begin: {why}")
        self.job_id = job_id


class StageNotCurrent(DomainError):
    """The version is in another stage than the one that was reported."""

    def __init__(self, version_id: int, stage: str, why: str) -> None:
        super().__init__(f"version {version_id} is {stage}: {why}")
        self.version_id = version_id
        self.stage = stage


class AttemptConflict(DomainError):
    """The attempt already ended another way; the stored end stands."""

    def __init__(self, attempt_id: int, status: str) -> None:
        super().__init__(f"attempt {attempt_id} already ended {status}")
        self.attempt_id = attempt_id
        self.status = status


class AttemptNotCurrent(DomainError):
    """The attempt was released or cancelled, so its outcome counts for nothing."""

    def __init__(self, attempt_id: int, status: str) -> None:
        super().__init__(f"attempt {attempt_id} is {status} and can report nothing any more")
        self.attempt_id = attempt_id
        self.status = status


class VersionIncomplete(DomainError):
    """Not every chunk of the version has its embedding."""

    def __init__(self, version_id: int, stage: str, embedded: int, chunks: int) -> None:
        super().__init__(
            f"version {version_id} is {stage} with {embedded} of {chunks} chunks embedded: it cannot be completed"
        )
        self.version_id = version_id


class RequestConflict(DomainError):
    """The request id was used before, for other content."""

    def __init__(self, request_id: str) -> None:
        super().__init__(
            f"request id {request_id!r} was already used for other content: send a new request id with new content"
        )
        self.request_id = request_id


class NotRetryable(DomainError):
    """This version cannot be retried."""

    def __init__(self, version_id: int, why: str) -> None:
        super().__init__(f"version {version_id} cannot be retried: {why}")
        self.version_id = version_id


class NothingToCancel(DomainError):
    """The document has no live job."""

    def __init__(self, document_id: int) -> None:
        super().__init__(f"document {document_id} has nothing to cancel: no job of it is waiting or running")
        self.document_id = document_id


class DocumentBusy(DomainError):
    """The document kept changing under a whole-document operation."""

    def __init__(self, document: object) -> None:
        super().__init__(f"document {document} kept changing while it was being locked: try again")


__all__ = [
    "AttemptConflict",
    "AttemptNotCurrent",
    "ClaimLost",
    "DocumentBusy",
    "DomainError",
    "InvalidRequest",
    "NotFound",
    "NotRetryable",
    "NothingToCancel",
    "RequestConflict",
    "StageNotCurrent",
    "StageNotDue",
    "VersionIncomplete",
]
