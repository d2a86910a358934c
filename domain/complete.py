"""Complete an attempt: the version becomes searchable, and its predecessor stops being so, in one transaction."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, func, select, update

from domain.errors import ClaimLost, VersionIncomplete
from domain.held import (
    UNCLAIMED,
    Claim,
    is_of,
    lock_document,
    lock_job,
    lock_versions,
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

    Locks the job, the version and the one it supersedes, and the document. Of a complete and a fail that race, the
    second waits, then finds the attempt ended. Safe to repeat: the stored result comes back and nothing is written.
    A version older than the current one completes without moving the pointer, its embeddings STALE.

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
    version, superseded, document = lock_succession(connection, job)
    if version.status != VersionStatus.STORING:
        raise VersionIncomplete(version.id, version.status, version.embedding_count, version.chunk_count)

    ended = connection.execute(
        update(attempts)
        .where(
            attempts.c.id == claim.attempt_id,
            attempts.c.claim_token == claim.token,
            # Again, since the wait for the version or the document may have outlived the lease.
            select(jobs.c.id).where(jobs.c.id == job.id, jobs.c.lease_expires_at > func.clock_timestamp()).exists(),
        )
        .values(status=AttemptStatus.INDEXED)
    )
    if ended.rowcount != 1:
        raise ClaimLost(claim.job_id, "expired")
    connection.execute(
        update(jobs)
        .where(jobs.c.id == claim.job_id, jobs.c.claim_token == claim.token)
        .values(status=JobStatus.INDEXED, **UNCLAIMED)
    )
    connection.execute(update(versions).where(versions.c.id == version.id).values(status=VersionStatus.INDEXED))
    if superseded is not None and superseded.version_no > version.version_no:
        make_stale(connection, version.id)  # it comes too late to be searched
    else:
        if superseded is not None:
            make_stale(connection, superseded.id)
        connection.execute(
            update(documents)
            .where(documents.c.id == document.id)
            .values(status=DocumentStatus.INDEXED, current_version_id=version.id)
        )
    return stored_completion(connection, job, attempt)


class _Superseded(Exception):
    """Another version became current between reading and locking."""


def lock_succession(connection: Connection, job: Row[Any]) -> tuple[Row[Any], Row[Any] | None, Row[Any]]:
    """Lock the job's version, the current version if there is one, and the document; return them.

    The current version is locked too, since its embeddings change, and no version may be locked after its document.
    Which one it is can change until the document is locked: then the locks are given back at a savepoint and it
    starts over. That ends, since each time one more version of the document has been completed.
    """
    current_id = select(documents.c.current_version_id).where(documents.c.id == job.document_id)
    while True:
        try:
            with connection.begin_nested():
                current = connection.execute(current_id).scalar_one()
                locked = lock_versions(connection, [job.version_id, *([] if current is None else [current])])
                document = lock_document(connection, job.document_id)
                if document.current_version_id != current:
                    raise _Superseded
                return locked[job.version_id], None if current is None else locked[current], document
        except _Superseded:
            continue


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
