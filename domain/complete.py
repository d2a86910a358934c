"""Complete an attempt: the version becomes searchable, and its predecessor stops being so, in one transaction."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, select, update

from domain.errors import VersionIncomplete
from domain.held import (
    UNCLAIMED,
    Claim,
    is_of,
    lock_document,
    lock_job,
    lock_version,
    read_attempt,
    refuse_ended,
    require_held,
)
from domain.statuses import AttemptStatus, DocumentStatus, EmbeddingStatus, JobStatus, VersionStatus
from domain.tables import attempts, documents, embeddings, events, jobs, versions


@dataclass(frozen=True, slots=True)
class AttemptCompleted:
    """How the attempt ended. ``current``: the version became the one that is searched, at that moment."""

    job_id: int
    attempt_id: int
    attempt_no: int
    document_id: int
    version_id: int
    version_no: int
    current: bool
    indexed_at: datetime


def complete_attempt(connection: Connection, claim: Claim) -> AttemptCompleted:
    """End the attempt, its job and its version as INDEXED, and point the document at the version.

    Locks job, version and document. Of a complete and a fail that race, the second waits, then finds the attempt
    ended. Safe to repeat: the stored result comes back and nothing is written. A version older than the current
    one completes without moving the pointer, its embeddings STALE.

    Raises:
        NotFound, AttemptConflict, AttemptNotCurrent, ClaimLost: the claim does not hold.
        VersionIncomplete: not every chunk has its embedding; nothing was written.
    """
    job = lock_job(connection, claim.job_id)
    attempt = read_attempt(connection, claim)
    if attempt.status == AttemptStatus.INDEXED and is_of(attempt, claim):
        return stored_completion(connection, job, attempt)
    refuse_ended(attempt)
    require_held(job, attempt, claim)
    version = lock_version(connection, job.version_id)
    if version.status != VersionStatus.STORING:
        raise VersionIncomplete(version.id, version.status, version.embedding_count, version.chunk_count)
    document = lock_document(connection, job.document_id)

    connection.execute(
        update(attempts)
        .where(attempts.c.id == claim.attempt_id, attempts.c.claim_token == claim.token)
        .values(status=AttemptStatus.INDEXED)
    )
    connection.execute(
        update(jobs)
        .where(jobs.c.id == claim.job_id, jobs.c.claim_token == claim.token)
        .values(status=JobStatus.INDEXED, **UNCLAIMED)
    )
    connection.execute(update(versions).where(versions.c.id == version.id).values(status=VersionStatus.INDEXED))
    superseded = newer_or_older(connection, document.current_version_id, version.version_no)
    if superseded == "newer":
        make_stale(connection, version.id)
    else:
        if superseded == "older":
            make_stale(connection, document.current_version_id)
        connection.execute(
            update(documents)
            .where(documents.c.id == document.id)
            .values(status=DocumentStatus.INDEXED, current_version_id=version.id)
        )
    return stored_completion(connection, job, attempt)


def newer_or_older(connection: Connection, current_version_id: int | None, version_no: int) -> str | None:
    """How the current version stands to ``version_no``: "newer", "older", or None where there is none."""
    if current_version_id is None:
        return None
    current_no = connection.execute(
        select(versions.c.version_no).where(versions.c.id == current_version_id)
    ).scalar_one()
    return "newer" if current_no > version_no else "older"


def make_stale(connection: Connection, version_id: int) -> None:
    """Take the version's embeddings out of search."""
    connection.execute(
        update(embeddings)
        .where(embeddings.c.version_id == version_id, embeddings.c.status == EmbeddingStatus.ACTIVE)
        .values(status=EmbeddingStatus.STALE)
    )


def stored_completion(connection: Connection, job: Row[Any], attempt: Row[Any]) -> AttemptCompleted:
    """What the rows say of the completion; whether the pointer moved is the event's to tell."""
    version = connection.execute(
        select(versions.c.version_no, versions.c.indexed_at).where(versions.c.id == job.version_id)
    ).one()
    became_current = connection.execute(
        select(events.c.id).where(
            events.c.document_id == job.document_id,
            events.c.type == "CURRENT_CHANGED",
            events.c.version_id == job.version_id,
        )
    ).first()
    return AttemptCompleted(
        job_id=job.id,
        attempt_id=attempt.id,
        attempt_no=attempt.attempt_no,
        document_id=job.document_id,
        version_id=job.version_id,
        version_no=version.version_no,
        current=became_current is not None,
        indexed_at=version.indexed_at,
    )
