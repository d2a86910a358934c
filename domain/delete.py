"""Delete a document: what is being built ends, and its content goes; its name is free again."""

from sqlalchemy import Connection, func, select, update

from domain.cancel import cancel_jobs
from domain.statuses import DocumentStatus
from domain.tables import documents
from domain.whole import lock_whole_document


def delete_document(connection: Connection, document_id: int, owner_id: str | None = None) -> None:
    """Delete the document, its text, chunks and embeddings; its jobs, attempts and events stay as history.

    From the commit on no search finds it, and a running stage finds its claim gone. Safe to repeat.

    Raises:
        NotFound: no such document, or not this owner's.
        DocumentBusy: it kept changing; try again.
    """
    # With its history: a retry of a stopped version must not find half of its content gone.
    document, live = lock_whole_document(connection, document_id, owner_id, with_history=True)
    if document.status == DocumentStatus.DELETED:
        return
    if live:
        cancel_jobs(connection, live)
    connection.execute(
        update(documents)
        .where(documents.c.id == document_id)
        .values(status=DocumentStatus.DELETED, current_version_id=None)
    )
    # The owner's function: the application role may delete no row itself.
    connection.execute(select(func.delete_document_content(document_id)))
