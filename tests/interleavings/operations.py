"""What a session does in a scene, and what of its answer and of the rows it leaves can be compared."""

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from domain.begin import begin_stage
from domain.cancel import cancel_document
from domain.claim import claim_jobs
from domain.complete import complete_attempt
from domain.delete import delete_document
from domain.enqueue import Upload, enqueue_document
from domain.errors import ClaimLost, DomainError
from domain.fail import fail_attempt
from domain.failures import Failure, FailureType
from domain.lease import extend_leases
from domain.record import load_chunks_without_embedding, record_chunks, record_embeddings, record_parsed
from domain.refusals import rule_of, sqlstate_of
from domain.release import release_attempt, release_unbegun
from domain.retry import retry_version
from domain.statuses import Task
from tests.domain.indexing import LEASE, Passage, Text
from tests.interleavings.scenes import Scene

TIMED_OUT = Failure(FailureType.STORAGE_UNAVAILABLE, "no answer")
CORRUPT = Failure(FailureType.DOCUMENT_CONTENT_INVALID, "no page can be read", "CORRUPT")

# What they return can be compared between runs: no id, no token, no time.
Operation = Callable[..., Any]  # of a connection, a scene, and which of its claims


def claim(connection: Connection, scene: Scene, which: int) -> Any:
    found = claim_jobs(connection, scene.other_worker_id, 5, list(Task))
    return sorted((job.stage, job.attempt_no, job.retry_count) for job in found)


def release_lost(connection: Connection, scene: Scene, which: int) -> Any:
    return [len(release_unbegun(connection, task, timedelta(0))) for task in Task]


def extend(connection: Connection, scene: Scene, which: int) -> Any:
    return len(extend_leases(connection, [scene.claimed[which].claim], 2 * LEASE))


def begin(connection: Connection, scene: Scene, which: int) -> Any:
    job = scene.claimed[which]
    return begin_stage(connection, job.claim, job.task, scene.other_worker_id, LEASE).stage


def store_text(connection: Connection, scene: Scene, which: int) -> Any:
    record_parsed(connection, scene.claimed[which].claim, Text("some text"), "0" * 62 + "30", 9)


def store_chunks(connection: Connection, scene: Scene, which: int) -> Any:
    record_chunks(connection, scene.claimed[which].claim, [Passage("some text", 0, 9, 1, 1)])


def store_vectors(connection: Connection, scene: Scene, which: int) -> Any:
    job = scene.claimed[which]
    chunks = load_chunks_without_embedding(connection, job.version_id)
    return record_embeddings(connection, job.claim, [chunk.id for chunk in chunks], [[1.0, 2.0, 3.0]] * len(chunks))


def complete(connection: Connection, scene: Scene, which: int) -> Any:
    return complete_attempt(connection, scene.claimed[which].claim).current


def fail(connection: Connection, scene: Scene, which: int) -> Any:
    return fail_attempt(connection, scene.claimed[which].claim, TIMED_OUT).outcome


def fail_for_good(connection: Connection, scene: Scene, which: int) -> Any:
    return fail_attempt(connection, scene.claimed[which].claim, CORRUPT).outcome


def release(connection: Connection, scene: Scene, which: int) -> Any:
    release_attempt(connection, scene.claimed[which].claim)


def retry(connection: Connection, scene: Scene, which: int) -> Any:
    return retry_version(connection, scene.newest_version_id) > 0


def cancel(connection: Connection, scene: Scene, which: int) -> Any:
    return len(cancel_document(connection, scene.document_id))


def delete(connection: Connection, scene: Scene, which: int) -> Any:
    delete_document(connection, scene.document_id)


def enqueue(connection: Connection, scene: Scene, which: int) -> Any:
    return _upload(connection, scene, "new", None)


def enqueue_a_request(connection: Connection, scene: Scene, which: int) -> Any:
    return _upload(connection, scene, "new", "request-1")


def enqueue_the_same(connection: Connection, scene: Scene, which: int) -> Any:
    """The bytes of the newest version."""
    return _upload(connection, scene, scene.newest_content, None)


def _upload(connection: Connection, scene: Scene, content: str, request_id: str | None) -> Any:
    sha256 = content.encode().hex().rjust(64, "0")
    upload = Upload("ann", "report.txt", "file:///report.txt", sha256, request_id)
    made = enqueue_document(connection, upload, scene.indexing.model_id)
    return made.version_no, made.unchanged


PASSES_OVER: dict[Operation, Any] = {claim: [], release_lost: [0, 0], extend: 0}
"""What these answer when the other session holds the row: they wait for nobody, and their turn comes again."""

ENDS = (complete, fail, fail_for_good, release)
ASKED = (retry, cancel, delete, enqueue, enqueue_a_request, enqueue_the_same)


def comparable(result: Any) -> Any:
    if isinstance(result, DBAPIError):
        return "refused", sqlstate_of(result), rule_of(result)
    if isinstance(result, ClaimLost):
        return "ClaimLost", result.reason
    if isinstance(result, DomainError):
        return type(result).__name__
    return result


def rows_left(connection: Connection) -> Any:
    """Every status, count and event; versions by number, since ids differ from run to run."""
    found = connection.execute(
        text(
            """
            SELECT d.status, current.version_no, v.version_no, v.status, v.stopped_stage, v.chunk_count,
                v.embedding_count, v.active_embedding_count,
                ARRAY(SELECT j.status || ' ' || j.task || ' ' || j.attempt_no || ' ' || j.retry_count
                      FROM embedding_jobs j WHERE j.version_id = v.id ORDER BY j.id),
                ARRAY(SELECT a.attempt_no || ' ' || a.status || ' ' || coalesce(a.outcome, '')
                          || coalesce(a.failure_type, '') || (a.stage_started_at IS NOT NULL)
                      FROM indexing_attempts a JOIN embedding_jobs j ON j.id = a.job_id
                      WHERE j.version_id = v.id ORDER BY j.id, a.attempt_no)
            FROM documents d JOIN document_versions v ON v.document_id = d.id
            LEFT JOIN document_versions current ON current.id = d.current_version_id
            ORDER BY d.id, v.version_no
            """
        )
    ).all()
    events = connection.execute(
        text(
            "SELECT e.type, v.version_no FROM indexing_events e LEFT JOIN document_versions v ON v.id = e.version_id "
            "UNION ALL SELECT n.type, v.version_no FROM notifications n JOIN document_versions v ON v.id = n.version_id"
        )
    )
    return repr(found), repr(sorted(Counter((row[0], row[1] or 0) for row in events).items()))
