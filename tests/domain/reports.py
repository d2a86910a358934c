"""What a worker reports of an attempt, for races in which it does not matter which of them it is."""

from collections.abc import Callable

from sqlalchemy import Connection

from domain.complete import complete_attempt
from domain.fail import fail_attempt
from domain.failures import Failure, FailureType
from domain.record import load_chunks_without_embedding, record_embeddings
from tests.domain.indexing import Indexing

BROKEN = Failure(FailureType.DOCUMENT_CONTENT_INVALID, "no page can be read", "CORRUPT")


def report_of(kind: str, connection: Connection, indexing: Indexing, version_id: int) -> Callable[..., object]:
    """A report of the worker, to be called with its claim."""
    if kind == "complete":
        return lambda claim: complete_attempt(connection, claim)
    if kind == "fail":
        return lambda claim: fail_attempt(connection, claim, BROKEN)
    ids = [chunk.id for chunk in load_chunks_without_embedding(indexing.connection, version_id)]
    indexing.connection.commit()
    return lambda claim: record_embeddings(connection, claim, ids, [[1.0, 2.0, 3.0]] * len(ids))
