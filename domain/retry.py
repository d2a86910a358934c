"""Retry a version by hand, from the stage where it stopped."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, func, insert, select, true, update

from domain.errors import NotFound, NotRetryable
from domain.held import lock_document, lock_job, lock_version
from domain.statuses import DocumentStatus, EmbeddingStatus, VersionStatus
from domain.tables import documents, embeddings, jobs, versions


@dataclass(frozen=True, slots=True)
class Retried:
    """The new job of a document's newest version."""

    document_id: int
    version_id: int
    job_id: int


def retry_document(connection: Connection, document_id: int, owner_id: str | None = None) -> Retried:
    """Retry the newest version of a document; see ``retry_version``.

    Raises:
        NotFound: no such document, or not this owner's; for its owner a deleted one is gone.
        NotRetryable: the newest version is not FAILED or CANCELLED, or the document is deleted.
    """
    found = (
        select(versions.c.id, documents.c.owner_id, documents.c.status)
        .join(documents, documents.c.id == versions.c.document_id)
        .where(versions.c.document_id == document_id)
        .order_by(versions.c.version_no.desc())
        .limit(1)
    )
    newest = connection.execute(found).one_or_none()
    if newest is None or owner_id not in (None, newest.owner_id):
        raise NotFound("document", document_id)
    if owner_id is not None and newest.status == DocumentStatus.DELETED:
        raise NotFound("document", document_id)
    return Retried(document_id, newest.id, retry_version(connection, newest.id))


def failed_documents(connection: Connection, failure_type: str | None = None, owner_id: str | None = None) -> list[int]:
    """The ids of the documents whose newest version FAILED, and not because of anything else than ``failure_type``."""
    newest = (
        select(versions.c.id, versions.c.status)
        .where(versions.c.document_id == documents.c.id)
        .order_by(versions.c.version_no.desc())
        .limit(1)
        .lateral("newest")
    )
    last = (
        select(jobs.c.last_failure_type)
        .where(jobs.c.version_id == newest.c.id)
        .order_by(jobs.c.id.desc())
        .limit(1)
        .lateral("last")
    )
    found = (
        select(documents.c.id)
        .select_from(documents)
        .join(newest, true())
        .join(last, true())
        .where(documents.c.status != DocumentStatus.DELETED, newest.c.status == VersionStatus.FAILED)
        .order_by(documents.c.id)
    )
    if failure_type is not None:
        found = found.where(last.c.last_failure_type == failure_type)
    if owner_id is not None:
        found = found.where(documents.c.owner_id == owner_id)
    return list(connection.execute(found).scalars())


def retry_version(connection: Connection, version_id: int) -> int:
    """Give the newest version of a document, FAILED or CANCELLED, a new job; return its id.

    It goes on at the stage where it stopped and uses the vectors it has: text, chunks and embeddings are kept.
    Its budget of retries is the old job's, from zero. Locks the last job, the version and the document.

    Raises:
        NotFound: there is no such version.
        NotRetryable: it is not FAILED or CANCELLED, not the newest, or its document is deleted.
    """
    job = lock_latest_job(connection, version_id)
    version = lock_version(connection, version_id)
    document = lock_document(connection, version.document_id)
    newest = connection.execute(
        select(versions.c.id)
        .where(versions.c.document_id == document.id)
        .order_by(versions.c.version_no.desc())
        .limit(1)
    ).scalar_one()
    if document.status == DocumentStatus.DELETED:
        raise NotRetryable(version_id, f"document {document.id} is deleted; add it again")
    if newest != version_id:
        raise NotRetryable(version_id, f"version {newest} of document {document.id} is newer")
    if version.status not in (VersionStatus.FAILED, VersionStatus.CANCELLED):
        now = "already searchable" if version.status == VersionStatus.INDEXED else "already waiting or running"
        raise NotRetryable(version_id, f"it is {now} ({version.status})")

    new_job = connection.execute(
        insert(jobs)
        .values(
            version_id=version_id,
            document_id=document.id,
            owner_id=document.owner_id,
            max_retry_count=job.max_retry_count,
        )
        .returning(jobs.c.id)
    ).scalar_one()
    # After its job, so that the MANUAL_RETRY event names the new one.
    connection.execute(update(versions).where(versions.c.id == version_id).values(status=version.stopped_stage))
    connection.execute(
        update(embeddings)
        .where(embeddings.c.version_id == version_id, embeddings.c.status == EmbeddingStatus.STALE)
        .values(status=EmbeddingStatus.ACTIVE)
    )
    if document.status != DocumentStatus.INDEXED:
        connection.execute(
            update(documents)
            .where(documents.c.id == document.id, documents.c.status != DocumentStatus.PENDING)
            .values(status=DocumentStatus.PENDING)
        )
    return new_job


def lock_latest_job(connection: Connection, version_id: int) -> Row[Any]:
    """Lock the version's latest job, under whose lock no other can be added.

    Raises:
        NotFound: there is no such version.
    """
    latest = select(func.max(jobs.c.id)).where(jobs.c.version_id == version_id)
    job: Row[Any] | None = None
    while (job_id := connection.execute(latest).scalar_one()) is not None:
        if job is not None and job.id == job_id:
            return job
        job = lock_job(connection, job_id)  # a retry may add another while this waits
    raise NotFound("version", version_id)
