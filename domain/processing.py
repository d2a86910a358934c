"""Cheap questions about many documents: how far they are, and which of an owner's are unfinished."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import (
    ARRAY,
    BigInteger,
    ColumnElement,
    Connection,
    Row,
    Select,
    any_,
    case,
    cast,
    func,
    literal,
    select,
    true,
)
from sqlalchemy.dialects.postgresql import JSONB, aggregate_order_by

from domain.history import AttemptError, attempt_error
from domain.statuses import STAGES, AttemptStatus, DocumentStatus, VersionStatus
from domain.tables import JOB_IS_LIVE, attempts, documents, jobs, versions
from domain.views import require_page

RECENT_ERRORS = 20  # of a job, whose budget can be a thousand retries

BEFORE = dict(zip(STAGES, (VersionStatus.UPLOADED, *STAGES), strict=False))
"""The stage whose output a stage starts from, and from which it is entered again after a failure."""


@dataclass(frozen=True, slots=True)
class DocumentProgress:
    """The least that a progress bar needs: of the newest version, and whether any version is still being built.

    ``chunks_embedded`` and ``chunks_total`` are None until the text is chunked. ``failure_type`` and
    ``failure_reason`` are the last failure of the newest version's last job, ``next_retry_at`` its next try.
    """

    document_id: int
    status: DocumentStatus
    finished: bool
    version_id: int
    version_no: int
    version_status: VersionStatus
    chunks_embedded: int | None
    chunks_total: int | None
    retry_count: int
    next_retry_at: datetime | None
    failure_type: str | None
    failure_reason: str | None


@dataclass(frozen=True, slots=True)
class ProcessingFile:
    """An unfinished document, by its newest version being built.

    ``last_retry_at``: when a try after a failure last began; None before the first. ``errors``: the latest 20, the
    oldest first.
    """

    file_id: int
    name: str
    current_stage: VersionStatus
    previous_stage: VersionStatus | None
    retry_count: int
    max_retry: int
    remaining_retry: int
    created_at: datetime
    last_retry_at: datetime | None
    next_retry_at: datetime | None
    errors: tuple[AttemptError, ...]


def documents_by_ids(connection: Connection, ids: Collection[int]) -> list[DocumentProgress]:
    """How far these documents are, in the order of their ids; unknown ones are left out. Made for thousands."""
    newest = (
        select(versions)
        .where(versions.c.document_id == documents.c.id)
        .order_by(versions.c.version_no.desc())
        .limit(1)
        .lateral("newest")
    )
    job = select(jobs).where(jobs.c.version_id == newest.c.id).order_by(jobs.c.id.desc()).limit(1).lateral("job")
    live = select(jobs.c.id).where(jobs.c.document_id == documents.c.id, JOB_IS_LIVE).exists()
    rows = connection.execute(
        select(
            documents.c.id,
            documents.c.status,
            (~live).label("finished"),
            newest.c.id.label("version_id"),
            newest.c.version_no,
            newest.c.status.label("version_status"),
            newest.c.chunk_count,
            newest.c.embedding_count,
            job.c.retry_count,
            job.c.next_retry_at,
            job.c.last_failure_type,
            job.c.last_failure_reason,
        )
        .select_from(documents)
        .join(newest, true())
        .join(job, true())
        .where(is_one_of(documents.c.id, ids))
        .order_by(documents.c.id)
    )
    return [
        DocumentProgress(
            document_id=row.id,
            status=DocumentStatus(row.status),
            finished=row.finished,
            version_id=row.version_id,
            version_no=row.version_no,
            version_status=VersionStatus(row.version_status),
            chunks_embedded=row.embedding_count if row.chunk_count else None,
            chunks_total=row.chunk_count or None,
            retry_count=row.retry_count,
            next_retry_at=row.next_retry_at,
            failure_type=row.last_failure_type,
            failure_reason=row.last_failure_reason,
        )
        for row in rows
    ]


def unfinished_count(connection: Connection, document_ids: Collection[int]) -> int:
    """How many of these documents have a version being built; exact."""
    return connection.execute(
        select(func.count(jobs.c.document_id.distinct())).where(
            is_one_of(jobs.c.document_id, document_ids), JOB_IS_LIVE
        )
    ).scalar_one()


def is_one_of(column: ColumnElement[int], ids: Collection[int]) -> ColumnElement[bool]:
    """The ids as one parameter: thousands of placeholders would be a new statement for each number of them."""
    return column == any_(cast(literal(sorted(set(ids)), ARRAY(BigInteger)), ARRAY(BigInteger)))


def processing_count(connection: Connection, owner_id: str) -> int:
    """How many documents of the owner are unfinished; exact."""
    return connection.execute(
        select(func.count(jobs.c.document_id.distinct())).where(jobs.c.owner_id == owner_id, JOB_IS_LIVE)
    ).scalar_one()


def processing_files(connection: Connection, owner_id: str, limit: int = 100) -> list[ProcessingFile]:
    """The unfinished documents of the owner, the oldest first: one statement along the index of his live jobs.

    Raises:
        InvalidRequest: ``limit`` is not from 1 to 1,000.
    """
    require_page(limit)
    return [processing_file(row) for row in connection.execute(unfinished(owner_id, limit))]


def unfinished(owner_id: str, limit: int) -> Select[Any]:
    # First the page of documents, along the index; then, of those few, the newest version and its attempts.
    page = (
        select(jobs.c.document_id)
        .distinct()
        .where(jobs.c.owner_id == owner_id, JOB_IS_LIVE)
        .order_by(jobs.c.document_id)
        .limit(limit)
        .subquery("page")
    )
    job = (
        select(
            jobs.c.id.label("job_id"),
            jobs.c.attempt_no,
            jobs.c.retry_count,
            jobs.c.max_retry_count,
            jobs.c.next_retry_at,
            versions.c.created_at,
            versions.c.status,
        )
        .join(versions, versions.c.id == jobs.c.version_id)
        .where(jobs.c.document_id == page.c.document_id, JOB_IS_LIVE)
        .order_by(versions.c.version_no.desc())
        .limit(1)
        .lateral("job")
    )
    failed = (
        select(attempts)
        .where(attempts.c.job_id == job.c.job_id, attempts.c.status == AttemptStatus.FAILED)
        .order_by(attempts.c.attempt_no.desc())
        .limit(RECENT_ERRORS)
        .correlate(job)
        .lateral("failed")
    )
    errors = select(
        func.jsonb_agg(
            aggregate_order_by(
                func.jsonb_build_object(
                    "attempt",
                    failed.c.attempt_no,
                    "stage",
                    failed.c.failed_stage,
                    "failureType",
                    failed.c.failure_type,
                    "failureReason",
                    failed.c.failure_reason,
                    "errorMessage",
                    failed.c.error_message,
                    "timestamp",
                    failed.c.finished_at,
                ),
                failed.c.attempt_no,
            ),
            type_=JSONB,
        ).label("errors")
    ).lateral("errors")
    # The newest attempt is a retry if one before it failed.
    newest = attempts.alias("newest")
    earlier = attempts.alias("earlier")
    is_retry = (
        select(earlier.c.id)
        .where(
            earlier.c.job_id == newest.c.job_id,
            earlier.c.attempt_no < newest.c.attempt_no,
            earlier.c.status == AttemptStatus.FAILED,
        )
        .exists()
    )
    return (
        select(
            documents.c.id,
            documents.c.name,
            job,
            case((is_retry, newest.c.started_at)).label("last_retry_at"),
            errors.c.errors,
        )
        .select_from(page)
        .join(documents, documents.c.id == page.c.document_id)
        .join(job, true())
        .outerjoin(newest, (newest.c.job_id == job.c.job_id) & (newest.c.attempt_no == job.c.attempt_no))
        .join(errors, true())
        .order_by(page.c.document_id)
    )


def processing_file(row: Row[Any]) -> ProcessingFile:
    stage = VersionStatus(row.status)
    return ProcessingFile(
        file_id=row.id,
        name=row.name,
        current_stage=stage,
        previous_stage=BEFORE.get(stage),
        retry_count=row.retry_count,
        max_retry=row.max_retry_count,
        remaining_retry=row.max_retry_count - row.retry_count,
        created_at=row.created_at,
        last_retry_at=row.last_retry_at,
        next_retry_at=row.next_retry_at,
        errors=tuple(attempt_error(error) for error in row.errors or ()),
    )
