"""What happened to a document: its events, its attempts, and the failures that were final."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, Select, select

from domain.errors import NotFound
from domain.statuses import AttemptStatus, DocumentStatus, Outcome, VersionStatus
from domain.tables import attempts, documents, events, jobs, processing_failures, versions, workers
from domain.views import require_page


@dataclass(frozen=True, slots=True)
class Event:
    """One change, as the database's own triggers wrote it; ``detail`` depends on the type."""

    id: int
    type: str
    stage: VersionStatus | None
    version_id: int | None
    version_no: int | None
    job_id: int | None
    attempt_id: int | None
    detail: Mapping[str, Any]
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try. ``claimed_by`` took the job, ``run_by`` runs or ran the stage; the rest as in ``indexing_attempts``."""

    id: int
    job_id: int
    attempt_no: int
    version_id: int
    version_no: int
    claimed_by: str
    run_by: str | None
    status: AttemptStatus
    started_at: datetime
    stage_started_at: datetime | None
    finished_at: datetime | None
    failed_stage: VersionStatus | None
    failure_type: str | None
    failure_reason: str | None
    error_message: str | None
    retryable: bool | None
    outcome: Outcome | None
    retry_count: int | None
    max_retry_count: int | None
    next_retry_at: datetime | None


@dataclass(frozen=True, slots=True)
class AttemptError:
    """Why one attempt failed, and in which stage."""

    attempt: int
    stage: VersionStatus
    failure_type: str
    failure_reason: str | None
    error_message: str
    timestamp: datetime


@dataclass(frozen=True, slots=True)
class FinalFailure:
    """A job that failed for good, with the error of every attempt. ``document_status`` is what the document is now."""

    id: int
    document_id: int
    document_status: DocumentStatus
    owner_id: str
    name: str
    version_id: int
    version_no: int
    job_id: int
    stage: VersionStatus
    failure_type: str
    retry_count: int
    errors: tuple[AttemptError, ...]
    final_failed_at: datetime


def history(
    connection: Connection, document_id: int, owner_id: str | None = None, limit: int = 1000, after: int = 0
) -> list[Event]:
    """The document's events in order, up to ``limit`` of those after the event ``after``.

    Raises:
        NotFound: no such document, or not this owner's; for its owner a deleted one is gone.
        InvalidRequest: ``limit`` is not from 1 to 1,000.
    """
    require_page(limit)
    require_document(connection, document_id, owner_id)
    rows = connection.execute(
        select(events, versions.c.version_no)
        .outerjoin(versions, versions.c.id == events.c.version_id)
        .where(events.c.document_id == document_id, events.c.id > after)
        .order_by(events.c.id)
        .limit(limit)
    )
    return [event_of(row) for row in rows]


def event_of(row: Row[Any]) -> Event:
    return Event(
        id=row.id,
        type=row.type,
        stage=VersionStatus(row.stage) if row.stage else None,
        version_id=row.version_id,
        version_no=row.version_no,
        job_id=row.job_id,
        attempt_id=row.attempt_id,
        detail=row.detail,
        created_at=row.created_at,
    )


def attempts_of(
    connection: Connection, document_id: int, owner_id: str | None = None, limit: int = 1000
) -> list[Attempt]:
    """The attempts of every version of the document: the latest ``limit``, the oldest of them first.

    Raises:
        NotFound: no such document, or not this owner's; for its owner a deleted one is gone.
        InvalidRequest: ``limit`` is not from 1 to 1,000.
    """
    require_page(limit)
    require_document(connection, document_id, owner_id)
    rows = connection.execute(
        attempt_rows().where(versions.c.document_id == document_id).order_by(attempts.c.id.desc()).limit(limit)
    ).all()
    return [attempt_of(row) for row in reversed(rows)]


def attempt_rows() -> Select[Any]:
    claimer, runner = workers.alias("claimer"), workers.alias("runner")
    return (
        select(
            attempts,
            versions.c.id.label("version_id"),
            versions.c.version_no,
            claimer.c.name.label("claimed_by"),
            runner.c.name.label("runner"),
        )
        .join(jobs, jobs.c.id == attempts.c.job_id)
        .join(versions, versions.c.id == jobs.c.version_id)
        .join(claimer, claimer.c.id == attempts.c.worker_id)
        .outerjoin(runner, runner.c.id == attempts.c.run_by)
    )


def attempt_of(row: Row[Any]) -> Attempt:
    return Attempt(
        id=row.id,
        job_id=row.job_id,
        attempt_no=row.attempt_no,
        version_id=row.version_id,
        version_no=row.version_no,
        claimed_by=row.claimed_by,
        run_by=row.runner,
        status=AttemptStatus(row.status),
        started_at=row.started_at,
        stage_started_at=row.stage_started_at,
        finished_at=row.finished_at,
        failed_stage=VersionStatus(row.failed_stage) if row.failed_stage else None,
        failure_type=row.failure_type,
        failure_reason=row.failure_reason,
        error_message=row.error_message,
        retryable=row.retryable,
        outcome=Outcome(row.outcome) if row.outcome else None,
        retry_count=row.retry_count,
        max_retry_count=row.max_retry_count,
        next_retry_at=row.next_retry_at,
    )


def require_document(connection: Connection, document_id: int, owner_id: str | None) -> None:
    found = select(documents.c.id).where(documents.c.id == document_id)
    if owner_id is not None:
        found = found.where(documents.c.owner_id == owner_id, documents.c.status != DocumentStatus.DELETED)
    if connection.execute(found).first() is None:
        raise NotFound("document", document_id)


def failures(
    connection: Connection, owner_id: str | None = None, limit: int = 50, after: int | None = None
) -> list[FinalFailure]:
    """A page of final failures, the newest first; they stay when the document is retried, replaced or deleted.

    Args:
        owner_id: whose; None for everybody's.
        after: the last ``id`` of the page before.

    Raises:
        InvalidRequest: ``limit`` is not from 1 to 1,000.
    """
    require_page(limit)
    page = (
        select(
            processing_failures, documents.c.name, documents.c.status.label("document_status"), versions.c.version_no
        )
        .join(documents, documents.c.id == processing_failures.c.document_id)
        .join(versions, versions.c.id == processing_failures.c.version_id)
        .order_by(processing_failures.c.id.desc())
        .limit(limit)
    )
    if owner_id is not None:
        page = page.where(processing_failures.c.owner_id == owner_id)
    if after is not None:
        page = page.where(processing_failures.c.id < after)
    return [
        FinalFailure(
            id=row.id,
            document_id=row.document_id,
            document_status=DocumentStatus(row.document_status),
            owner_id=row.owner_id,
            name=row.name,
            version_id=row.version_id,
            version_no=row.version_no,
            job_id=row.job_id,
            stage=VersionStatus(row.stage),
            failure_type=row.failure_type,
            retry_count=row.retry_count,
            errors=tuple(attempt_error(error) for error in row.errors),
            final_failed_at=row.final_failed_at,
        )
        for row in connection.execute(page)
    ]


def attempt_error(stored: Mapping[str, Any]) -> AttemptError:
    """An error out of the JSON that the database makes of an attempt."""
    return AttemptError(
        attempt=stored["attempt"],
        stage=VersionStatus(stored["stage"]),
        failure_type=stored["failureType"],
        failure_reason=stored["failureReason"],
        error_message=stored["errorMessage"],
        timestamp=datetime.fromisoformat(stored["timestamp"]),
    )
