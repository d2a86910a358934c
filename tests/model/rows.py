"""What there is: the rows of the database, in the shape of ``tests.model.world.World.rows``."""

from typing import Any

from sqlalchemy import Connection, text

_QUERIES = {
    "documents": "SELECT id, owner_id, name, status, current_version_id FROM documents",
    "versions": """
        SELECT v.id, v.document_id, v.version_no, v.status, v.stopped_stage, v.content_sha256,
            EXISTS (SELECT FROM parsed_texts WHERE version_id = v.id), v.indexed_at IS NOT NULL,
            v.chunk_count, v.embedding_count, v.active_embedding_count,
            (SELECT count(*) FROM chunks WHERE version_id = v.id),
            ARRAY(SELECT c.chunk_no FROM embeddings e JOIN chunks c ON c.id = e.chunk_id
                  WHERE e.version_id = v.id ORDER BY c.chunk_no),
            (SELECT count(*) FROM embeddings WHERE version_id = v.id AND status = 'ACTIVE')
        FROM document_versions v
    """,
    "jobs": """
        SELECT id, version_id, task, status, attempt_no, retry_count, max_retry_count, worker_id, claim_token,
            lease_expires_at <= clock_timestamp(),
            CASE status WHEN 'PENDING' THEN due_at <= clock_timestamp() END,
            last_failure_type, last_error_message
        FROM embedding_jobs
    """,
    "attempts": """
        SELECT id, job_id, attempt_no, worker_id, claim_token, status, run_by, stage_started_at IS NOT NULL,
            failed_stage, failure_type, failure_reason, error_message, retryable, outcome, retry_count,
            next_retry_at - finished_at
        FROM indexing_attempts
    """,
    "failures": """
        SELECT job_id, version_id, stage, failure_type, retry_count, jsonb_array_length(errors) FROM processing_failures
    """,
}


def read(connection: Connection) -> dict[str, dict[Any, Any]]:
    """Every row that the model knows of, by id."""
    found: dict[str, dict[Any, Any]] = {
        table: {row[0]: tuple(row[1:]) for row in connection.execute(text(query))} for table, query in _QUERIES.items()
    }
    notifications = connection.execute(
        text("SELECT owner_id, document_id, version_id, type, count(*) FROM notifications GROUP BY 1, 2, 3, 4")
    )
    found["notifications"] = {tuple(row[:4]): row[4] for row in notifications}
    return found


def events_after(connection: Connection, event_id: int) -> tuple[list[tuple[Any, ...]], int]:
    """The events written after that one, and the id of the last."""
    rows = connection.execute(
        text(
            """
            SELECT id, document_id, version_id, job_id, attempt_id, type, stage
            FROM indexing_events WHERE id > :after ORDER BY id
            """
        ),
        {"after": event_id},
    ).all()
    return [tuple(row[1:]) for row in rows], rows[-1].id if rows else event_id
