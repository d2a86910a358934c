"""Each step of a document's life in raw SQL, as the domain takes it: these tests depend on nothing but the schema."""

from dataclasses import dataclass, replace
from itertools import count
from uuid import UUID

from sqlalchemy import Connection

from domain.failures import FailureType
from domain.statuses import AttemptStatus
from tests.database.refusals import one, row, run

DIMENSIONS = 3
CHUNKS = 2

_numbers = count(1)


@dataclass(frozen=True, slots=True)
class Indexing:
    """The rows of one version on its way; the attempt is that of the last claim."""

    owner_id: str
    document_id: int
    version_id: int
    job_id: int
    model_id: int
    worker_id: int
    attempt_id: int = 0
    token: UUID | None = None


def register_worker(connection: Connection) -> int:
    return int(
        one(connection, "INSERT INTO workers (name, queues, concurrency) VALUES ('w', '{parse,embed}', 1) RETURNING id")
    )


def register_model(connection: Connection, dimensions: int = DIMENSIONS) -> int:
    return int(one(connection, "SELECT register_model('test:model', :dimensions)", dimensions=dimensions))


def upload(
    connection: Connection,
    document_id: int | None = None,
    max_retry_count: int = 3,
    dimensions: int = DIMENSIONS,
) -> Indexing:
    """A new version with its job, of a new document or of the one given."""
    if document_id is None:
        document_id = one(
            connection,
            "INSERT INTO documents (owner_id, name) VALUES ('owner', :name) RETURNING id",
            name=f"document {next(_numbers)}",
        )
    model_id = register_model(connection, dimensions)
    version = row(
        connection,
        """
        INSERT INTO document_versions (document_id, owner_id, version_no, storage_uri, model_id)
        SELECT :document, owner_id,
            (SELECT coalesce(max(version_no), 0) + 1 FROM document_versions WHERE document_id = :document),
            'file:///a', :model
        FROM documents WHERE id = :document RETURNING id, owner_id
        """,
        document=document_id,
        model=model_id,
    )
    made = Indexing(version["owner_id"], document_id, version["id"], 0, model_id, register_worker(connection))
    made = add_job(connection, made, max_retry_count)
    run(
        connection,
        "UPDATE documents SET status = 'PENDING' WHERE id = :document AND status IN ('FAILED', 'CANCELLED')",
        document=document_id,
    )
    return made


def add_job(connection: Connection, of: Indexing, max_retry_count: int = 3) -> Indexing:
    job_id = one(
        connection,
        """
        INSERT INTO embedding_jobs (version_id, document_id, owner_id, max_retry_count)
        VALUES (:version, :document, :owner, :budget) RETURNING id
        """,
        version=of.version_id,
        document=of.document_id,
        owner=of.owner_id,
        budget=max_retry_count,
    )
    return replace(of, job_id=job_id)


def claim(connection: Connection, of: Indexing, lease: str = "10 minutes") -> Indexing:
    claim_job(connection, of, lease)
    attempt = add_attempt(connection, of)
    run(
        connection,
        "UPDATE document_versions SET status = 'PARSING' WHERE id = :version AND status = 'UPLOADED'",
        version=of.version_id,
    )
    return attempt


def claim_job(connection: Connection, of: Indexing, lease: str = "10 minutes") -> None:
    run(
        connection,
        """
        UPDATE embedding_jobs SET status = 'PROCESSING', attempt_no = attempt_no + 1, next_retry_at = NULL,
            worker_id = :worker, claim_token = gen_random_uuid(),
            lease_expires_at = clock_timestamp() + cast(:lease AS interval)
        WHERE id = :job
        """,
        worker=of.worker_id,
        lease=lease,
        job=of.job_id,
    )


def add_attempt(connection: Connection, of: Indexing) -> Indexing:
    attempt = row(
        connection,
        """
        INSERT INTO indexing_attempts (job_id, attempt_no, worker_id, claim_token)
        SELECT id, attempt_no, worker_id, claim_token FROM embedding_jobs WHERE id = :job RETURNING id, claim_token
        """,
        job=of.job_id,
    )
    return replace(of, attempt_id=attempt["id"], token=attempt["claim_token"])


def move_version(connection: Connection, of: Indexing, status: str) -> None:
    run(connection, "UPDATE document_versions SET status = :status WHERE id = :id", status=status, id=of.version_id)


def move_document(connection: Connection, of: Indexing, status: str) -> None:
    run(connection, "UPDATE documents SET status = :status WHERE id = :id", status=status, id=of.document_id)


def set_current(connection: Connection, of: Indexing) -> None:
    run(
        connection,
        "UPDATE documents SET status = 'INDEXED', current_version_id = :version WHERE id = :document",
        version=of.version_id,
        document=of.document_id,
    )


def end_attempt(
    connection: Connection, of: Indexing, status: str, failure_type: FailureType = FailureType.WORKER_INTERNAL_ERROR
) -> None:
    failed = status == AttemptStatus.FAILED
    run(
        connection,
        "UPDATE indexing_attempts SET status = :status, failure_type = :type, error_message = :message WHERE id = :id",
        status=status,
        type=failure_type if failed else None,
        message="it broke" if failed else None,
        id=of.attempt_id,
    )


def end_job(connection: Connection, of: Indexing, status: str) -> None:
    """End the job, or give it back as the image of its ended attempt."""
    run(
        connection,
        """
        UPDATE embedding_jobs j SET status = :status, worker_id = NULL, claim_token = NULL, lease_expires_at = NULL,
            retry_count = j.retry_count + CASE WHEN :status = 'PENDING' AND a.outcome = 'RETRY' THEN 1 ELSE 0 END,
            next_retry_at = CASE WHEN :status = 'PENDING' THEN a.next_retry_at END
        FROM embedding_jobs k LEFT JOIN indexing_attempts a ON a.job_id = k.id AND a.attempt_no = k.attempt_no
        WHERE j.id = :job AND k.id = j.id
        """,
        status=status,
        job=of.job_id,
    )


def store_text(connection: Connection, of: Indexing) -> None:
    run(
        connection,
        "INSERT INTO parsed_texts (version_id, text, page_starts) VALUES (:version, 'text', '{0}')",
        version=of.version_id,
    )


def store_chunks(connection: Connection, of: Indexing, number: int = CHUNKS) -> None:
    run(
        connection,
        """
        INSERT INTO chunks (version_id, chunk_no, text, char_start, char_end, token_count, text_sha256)
        SELECT :version, first + n, 'text', 0, 4, 1, repeat('0', 64)
        FROM (SELECT coalesce(max(chunk_no), -1) FROM chunks WHERE version_id = :version) last (first),
            generate_series(1, :number) n
        """,
        version=of.version_id,
        number=number,
    )


def store_embeddings(connection: Connection, of: Indexing, limit: int | None = None) -> None:
    """Embed the version's chunks that have no embedding yet."""
    run(
        connection,
        """
        INSERT INTO embeddings (chunk_id, model_id, version_id, owner_id, embedding)
        SELECT c.id, :model, c.version_id, :owner, (SELECT array_agg(1.0) FROM generate_series(1, m.dimensions))::vector
        FROM chunks c JOIN embedding_models m ON m.id = :model
        WHERE c.version_id = :version AND NOT EXISTS (SELECT FROM embeddings WHERE chunk_id = c.id)
        ORDER BY c.id LIMIT :limit
        """,
        model=of.model_id,
        owner=of.owner_id,
        version=of.version_id,
        limit=limit,
    )


def switch_embeddings(connection: Connection, of: Indexing, status: str) -> None:
    run(
        connection,
        "UPDATE embeddings SET status = :status WHERE version_id = :version AND status <> :status",
        status=status,
        version=of.version_id,
    )


def to_chunking(connection: Connection, of: Indexing) -> None:
    store_text(connection, of)
    move_version(connection, of, "CHUNKING")


def to_embedding(connection: Connection, of: Indexing) -> None:
    store_chunks(connection, of)
    move_version(connection, of, "EMBEDDING")


def to_storing(connection: Connection, of: Indexing) -> None:
    store_embeddings(connection, of)
    move_version(connection, of, "STORING")


def complete(connection: Connection, of: Indexing) -> None:
    """Complete a claimed STORING version, which becomes current unless a newer one is."""
    end_attempt(connection, of, "INDEXED")
    end_job(connection, of, "INDEXED")
    move_version(connection, of, "INDEXED")
    current = row(
        connection,
        """
        SELECT d.current_version_id AS id, c.version_no > v.version_no AS newer
        FROM document_versions v JOIN documents d ON d.id = v.document_id
            LEFT JOIN document_versions c ON c.id = d.current_version_id
        WHERE v.id = :version
        """,
        version=of.version_id,
    )
    if current["newer"]:
        switch_embeddings(connection, of, "STALE")
    else:
        switch_embeddings(connection, replace(of, version_id=current["id"] or 0), "STALE")
        set_current(connection, of)


def fail(
    connection: Connection, of: Indexing, failure_type: FailureType = FailureType.DOCUMENT_CONTENT_INVALID
) -> None:
    """End the claimed attempt as FAILED, and with it what its outcome ends."""
    end_attempt(connection, of, "FAILED", failure_type)
    outcome = one(connection, "SELECT outcome FROM indexing_attempts WHERE id = :id", id=of.attempt_id)
    if outcome == "RETRY":
        end_job(connection, of, "PENDING")
    else:
        stop(connection, of, "FAILED")


def release(connection: Connection, of: Indexing) -> None:
    end_attempt(connection, of, "RELEASED")
    end_job(connection, of, "PENDING")


def cancel(connection: Connection, of: Indexing) -> None:
    """Cancel a live job, claimed or not."""
    run(
        connection,
        "UPDATE indexing_attempts SET status = 'CANCELLED' WHERE job_id = :job AND status = 'STARTED'",
        job=of.job_id,
    )
    stop(connection, of, "CANCELLED")


def stop(connection: Connection, of: Indexing, status: str) -> None:
    """End job, version and, where nothing else lives of it, document; the embeddings go STALE."""
    end_job(connection, of, status)
    move_version(connection, of, status)
    switch_embeddings(connection, of, "STALE")
    run(
        connection,
        """
        UPDATE documents SET status = :status WHERE id = :document AND status = 'PENDING' AND NOT EXISTS (
            SELECT FROM embedding_jobs WHERE document_id = :document AND status IN ('PENDING', 'PROCESSING'))
        """,
        status=status,
        document=of.document_id,
    )


def retry(connection: Connection, of: Indexing) -> Indexing:
    """Give a FAILED or CANCELLED version a new job, at the stage where it stopped."""
    retried = add_job(connection, of)
    run(connection, "UPDATE document_versions SET status = stopped_stage WHERE id = :id", id=of.version_id)
    switch_embeddings(connection, of, "ACTIVE")
    run(
        connection,
        "UPDATE documents SET status = 'PENDING' WHERE id = :id AND status IN ('FAILED', 'CANCELLED')",
        id=of.document_id,
    )
    return retried


def delete(connection: Connection, of: Indexing) -> None:
    """Delete a document that has no live job."""
    run(
        connection,
        "UPDATE documents SET status = 'DELETED', current_version_id = NULL WHERE id = :id",
        id=of.document_id,
    )
    run(connection, "SELECT delete_document_content(:id)", id=of.document_id)
