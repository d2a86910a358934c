"""Lock a whole document: its jobs, their versions, then the document itself."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, select

from domain.errors import DocumentBusy, NotFound
from domain.held import lock_document, lock_versions
from domain.statuses import JobStatus
from domain.tables import JOB_IS_LIVE, documents, jobs

TRIES = 5


class _Changed(Exception):
    """A job came or went between reading and locking."""


def lock_whole_document(
    connection: Connection, document_id: int, owner_id: str | None, with_history: bool = False
) -> tuple[Row[Any], Sequence[Row[Any]]]:
    """Lock the document with its live jobs and their versions; return the document and these jobs.

    The order is job, version, document, several in the order of their ids. Which jobs there are is read before
    they are locked, and again after: where it changed, the locks are given back at a savepoint and it starts over.

    Args:
        owner_id: whose document it must be; None for any owner.
        with_history: lock the ended jobs and versions too, for what changes all of them.

    Raises:
        NotFound: no such document, or not this owner's.
        DocumentBusy: it changed under every one of a few tries.
    """
    found = connection.execute(select(documents.c.owner_id).where(documents.c.id == document_id)).scalar_one_or_none()
    if found is None or owner_id not in (None, found):
        raise NotFound("document", document_id)
    wanted = select(jobs).where(jobs.c.document_id == document_id).order_by(jobs.c.id)
    if not with_history:
        wanted = wanted.where(JOB_IS_LIVE)
    for _ in range(TRIES):
        try:
            with connection.begin_nested():
                locked = connection.execute(wanted.with_for_update(key_share=True)).all()
                lock_versions(connection, {job.version_id for job in locked})
                document = lock_document(connection, document_id)
                if [job.id for job in connection.execute(wanted)] != [job.id for job in locked]:
                    raise _Changed
                return document, [job for job in locked if job.status in (JobStatus.PENDING, JobStatus.PROCESSING)]
        except _Changed:
            continue
    raise DocumentBusy(document_id)
