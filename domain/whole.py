"""Lock a whole document: its live jobs, their versions, then the document itself."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, select

from domain.errors import DocumentBusy, NotFound
from domain.held import lock_document
from domain.tables import JOB_IS_LIVE, documents, jobs, versions

TRIES = 5


class _Changed(Exception):
    """A job came or went between reading and locking."""


def lock_whole_document(
    connection: Connection, document_id: int, owner_id: str | None
) -> tuple[Row[Any], Sequence[Row[Any]]]:
    """Lock the document with its live jobs; return the document and the jobs.

    The order is job, version, document, several in the order of their ids. Which jobs are live is read before
    they are locked, and again after: where it changed, the locks are given back at a savepoint and it starts over.

    Args:
        owner_id: whose document it must be; None for any owner.

    Raises:
        NotFound: no such document, or not this owner's.
        DocumentBusy: it changed under every one of a few tries.
    """
    found = connection.execute(select(documents.c.owner_id).where(documents.c.id == document_id)).scalar_one_or_none()
    if found is None or owner_id not in (None, found):
        raise NotFound("document", document_id)
    live = select(jobs).where(jobs.c.document_id == document_id, JOB_IS_LIVE).order_by(jobs.c.id)
    for _ in range(TRIES):
        try:
            with connection.begin_nested():
                locked = connection.execute(live.with_for_update(key_share=True)).all()
                connection.execute(
                    select(versions.c.id)
                    .where(versions.c.id.in_([job.version_id for job in locked]))
                    .order_by(versions.c.id)
                    .with_for_update(key_share=True)
                ).all()
                document = lock_document(connection, document_id)
                if [job.id for job in connection.execute(live)] != [job.id for job in locked]:
                    raise _Changed
                return document, locked
        except _Changed:
            continue
    raise DocumentBusy(document_id)
