"""Cancel what is being built of a document; what is searchable stays searchable."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, update

from domain.complete import make_stale
from domain.errors import NotFound, NothingToCancel
from domain.fail import stop_document
from domain.held import UNCLAIMED
from domain.statuses import AttemptStatus, DocumentStatus, JobStatus, VersionStatus
from domain.tables import attempts, jobs, versions
from domain.whole import lock_whole_document


def cancel_document(connection: Connection, document_id: int, owner_id: str | None = None) -> list[int]:
    """Cancel every live job of the document; return their ids.

    A running stage finds its claim gone at its next write, and stops. A document with a current version keeps it.

    Raises:
        NotFound: no such document, or not this owner's.
        NothingToCancel: it has no live job.
        DocumentBusy: it kept changing; try again.
    """
    document, live = lock_whole_document(connection, document_id, owner_id)
    if document.status == DocumentStatus.DELETED:
        raise NotFound("document", document_id)
    if not live:
        raise NothingToCancel(document_id)
    cancel_jobs(connection, live)
    stop_document(connection, document, DocumentStatus.CANCELLED)
    return [job.id for job in live]


def cancel_jobs(connection: Connection, live: Sequence[Row[Any]]) -> None:
    """End these locked jobs, their attempts and their versions as CANCELLED."""
    ids = [job.id for job in live]
    version_ids = [job.version_id for job in live]
    connection.execute(
        update(attempts)
        .where(attempts.c.job_id.in_(ids), attempts.c.status == AttemptStatus.STARTED)
        .values(status=AttemptStatus.CANCELLED)
    )
    connection.execute(
        update(jobs).where(jobs.c.id.in_(ids)).values(status=JobStatus.CANCELLED, next_retry_at=None, **UNCLAIMED)
    )
    connection.execute(update(versions).where(versions.c.id.in_(version_ids)).values(status=VersionStatus.CANCELLED))
    for version_id in version_ids:
        make_stale(connection, version_id)
