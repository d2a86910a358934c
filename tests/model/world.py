"""What there should be: documents, versions, jobs and attempts as plain objects, and the rows they stand for."""

from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from domain.failures import FailureType
from domain.policy import FailurePolicy

ENDED = ("INDEXED", "FAILED", "CANCELLED")
LIVE = ("PENDING", "PROCESSING")
HOUR = timedelta(hours=1)


@dataclass(eq=False)
class Document:
    id: int
    owner_id: str
    name: str
    status: str = "PENDING"
    current: "Version | None" = None
    versions: "list[Version]" = field(default_factory=list)

    @property
    def live_jobs(self) -> "list[Job]":
        return [job for version in self.versions for job in version.jobs if job.status in LIVE]


@dataclass(eq=False)
class Version:
    id: int
    document: Document
    no: int
    storage_uri: str
    sha256: str | None
    model_id: int
    status: str = "UPLOADED"
    stopped_stage: str | None = None
    jobs: "list[Job]" = field(default_factory=list)
    has_text: bool = False
    chunks: int = 0
    embedded: set[int] = field(default_factory=set)  # numbers of the chunks that have an embedding
    active: bool = True  # all embeddings of a version are ACTIVE, or all are STALE


@dataclass(eq=False)
class Job:
    id: int
    version: Version
    max_retry_count: int
    born: int  # in this order jobs become due
    due: int | None  # when, in the same count; None is in the future
    task: str = "parse"
    status: str = "PENDING"
    retry_count: int = 0
    lease_over: int | None = None  # since when, in the same count
    attempts: "list[Attempt]" = field(default_factory=list)


@dataclass(eq=False)
class Attempt:
    id: int
    job: Job
    no: int
    worker_id: int
    token: UUID
    status: str = "STARTED"
    run_by: int | None = None
    begun: bool = False
    # of a failed attempt
    failed_stage: str | None = None
    failure_type: str | None = None
    failure_reason: str | None = None
    error_message: str | None = None
    retryable: bool | None = None
    outcome: str | None = None
    retry_count: int | None = None
    delay: timedelta | None = None


@dataclass(eq=False)
class Worker:
    id: int
    queues: tuple[str, ...]
    concurrency: int
    stopped: bool = False
    silent: bool = False


@dataclass
class World:
    """Everything the database should hold, and what the last change should have added to its history."""

    documents: dict[int, Document] = field(default_factory=dict)
    versions: dict[int, Version] = field(default_factory=dict)
    jobs: dict[int, Job] = field(default_factory=dict)
    attempts: dict[int, Attempt] = field(default_factory=dict)
    workers: dict[int, Worker] = field(default_factory=dict)
    requests: dict[tuple[str, str], Version] = field(default_factory=dict)
    policies: dict[str, FailurePolicy] = field(default_factory=dict)
    notifications: "Counter[tuple[Any, ...]]" = field(default_factory=Counter)
    failures: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    new_events: list[tuple[Any, ...]] = field(default_factory=list)
    time: int = 0

    @classmethod
    def empty(cls) -> "World":
        """No documents; retries are due at once or in hours, so that none becomes due while a test looks on."""
        world = cls()
        for failure_type in FailureType:
            retryable = failure_type not in (
                FailureType.DOCUMENT_CONTENT_INVALID,
                FailureType.EMBEDDING_RESULT_INVALID,
                FailureType.INDEXING_STATE_INCONSISTENT,
            )
            world.policies[failure_type] = FailurePolicy(failure_type, retryable, HOUR, Decimal(2), 5 * HOUR)
        return world

    def now(self) -> int:
        self.time += 1
        return self.time

    def event(
        self,
        document: Document,
        type_: str,
        stage: str | None = None,
        version: Version | None = None,
        job: Job | None = None,
        attempt: Attempt | None = None,
    ) -> None:
        ids = (found.id if found else None for found in (version, job, attempt))
        self.new_events.append((document.id, *ids, type_, stage))

    def rows(self) -> dict[str, dict[Any, Any]]:
        """The rows that ``tests.model.rows.read`` should find."""
        return {
            "documents": {
                d.id: (d.owner_id, d.name, d.status, d.current and d.current.id) for d in self.documents.values()
            },
            "versions": {
                v.id: (
                    v.document.id,
                    v.no,
                    v.status,
                    v.stopped_stage,
                    v.sha256,
                    v.has_text,
                    v.status == "INDEXED",
                    # as counted, and as they are
                    *(v.chunks, len(v.embedded), len(v.embedded) if v.active else 0),
                    *(v.chunks, sorted(v.embedded), len(v.embedded) if v.active else 0),
                )
                for v in self.versions.values()
            },
            "jobs": {j.id: _job_row(j) for j in self.jobs.values()},
            "attempts": {
                a.id: (
                    a.job.id,
                    a.no,
                    a.worker_id,
                    a.token,
                    a.status,
                    a.run_by,
                    a.begun,
                    a.failed_stage,
                    a.failure_type,
                    a.failure_reason,
                    a.error_message,
                    a.retryable,
                    a.outcome,
                    a.retry_count,
                    a.delay,
                )
                for a in self.attempts.values()
            },
            "failures": self.failures,
            "notifications": dict(self.notifications),
        }


def _job_row(job: Job) -> tuple[Any, ...]:
    held = job.status == "PROCESSING"
    failed = [attempt for attempt in job.attempts if attempt.status == "FAILED"]
    return (
        job.version.id,
        job.task,
        job.status,
        len(job.attempts),
        job.retry_count,
        job.max_retry_count,
        job.attempts[-1].worker_id if held else None,
        job.attempts[-1].token if held else None,
        (job.lease_over is not None) if held else None,
        job.due is not None if job.status == "PENDING" else None,
        failed[-1].failure_type if failed else None,
        failed[-1].error_message if failed else None,
    )
