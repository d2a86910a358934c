"""Record what a stage made: its output and the step to the next stage are one transaction."""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pgvector import Vector
from pgvector.sqlalchemy import VECTOR
from sqlalchemy import (
    BigInteger,
    Connection,
    Integer,
    Row,
    Text,
    cast,
    func,
    insert,
    literal,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.dialects.postgresql import insert as insert_or_skip

from domain.claim import DISPATCH_LEASE
from domain.errors import InvalidRequest, NotFound, StageNotCurrent
from domain.held import Claim, lock_held_job
from domain.statuses import VersionStatus
from domain.tables import attempts, chunks, embeddings, jobs, models, parsed_texts, versions


class Parsed(Protocol):
    """What the parse stage made of a document."""

    @property
    def text(self) -> str: ...
    @property
    def page_starts(self) -> Sequence[int]: ...  # offset of each page's first character; empty without pages
    @property
    def title(self) -> str | None: ...
    @property
    def metadata(self) -> Mapping[str, Any]: ...
    @property
    def media_type(self) -> str: ...


class Chunk(Protocol):
    """A passage of the parsed text: ``text[char_start:char_end]``, exactly."""

    @property
    def text(self) -> str: ...
    @property
    def char_start(self) -> int: ...
    @property
    def char_end(self) -> int: ...
    @property
    def page_no(self) -> int | None: ...
    @property
    def token_count(self) -> int: ...


@dataclass(frozen=True, slots=True)
class ParsedText:
    """The stored text that chunking works on."""

    text: str
    page_starts: tuple[int, ...]
    media_type: str


@dataclass(frozen=True, slots=True)
class ChunkToEmbed:
    """A chunk that has no embedding of its version's model yet."""

    id: int
    chunk_no: int
    text: str
    token_count: int


def record_parsed(connection: Connection, claim: Claim, parsed: Parsed, content_sha256: str, size_bytes: int) -> None:
    """Store the parsed text: PARSING → CHUNKING. Safe to repeat: the same text again changes nothing.

    Args:
        content_sha256: of the bytes that were read, in hex; fixed for the version from now on.

    Raises:
        NotFound, AttemptConflict, AttemptNotCurrent, ClaimLost: the claim does not hold.
        StageNotCurrent: the version has another text already.
    """
    job, _ = lock_held_job(connection, claim)
    stage = stage_of(connection, job.version_id)
    if stage != VersionStatus.PARSING:
        stored = connection.execute(select(parsed_texts.c.text).where(parsed_texts.c.version_id == job.version_id))
        if stored.scalar_one() == parsed.text:
            return
        raise StageNotCurrent(job.version_id, stage, "it has another text already")
    connection.execute(
        insert(parsed_texts).values(
            version_id=job.version_id,
            text=parsed.text,
            page_starts=list(parsed.page_starts),
            title=parsed.title,
            metadata_=dict(parsed.metadata),
        )
    )
    connection.execute(
        update(versions)
        .where(versions.c.id == job.version_id)
        .values(
            status=VersionStatus.CHUNKING,
            content_sha256=content_sha256,
            size_bytes=size_bytes,
            media_type=parsed.media_type,
        )
    )


def load_parsed(connection: Connection, version_id: int) -> ParsedText:
    """The version's parsed text.

    Raises:
        NotFound: it has none yet, or its document was deleted.
    """
    row = connection.execute(
        select(parsed_texts.c.text, parsed_texts.c.page_starts, versions.c.media_type)
        .join(versions, versions.c.id == parsed_texts.c.version_id)
        .where(parsed_texts.c.version_id == version_id)
    ).one_or_none()
    if row is None:
        raise NotFound("text of version", version_id)
    return ParsedText(row.text, tuple(row.page_starts), row.media_type or "text/plain")


def record_chunks(connection: Connection, claim: Claim, made: Sequence[Chunk]) -> None:
    """Store the chunks, in order: CHUNKING → EMBEDDING. Safe to repeat: the same chunks again change nothing.

    The attempt then waits for its embed message as a fresh claim does: not begun, with a dispatch lease. A worker
    that needs no message goes on with ``domain.begin.go_on``.

    Raises:
        NotFound, AttemptConflict, AttemptNotCurrent, ClaimLost: the claim does not hold.
        StageNotCurrent: the version has no text yet, or other chunks already.
    """
    job, _ = lock_held_job(connection, claim)
    hashes = [hashlib.sha256(chunk.text.encode()).hexdigest() for chunk in made]
    stage = stage_of(connection, job.version_id)
    if stage != VersionStatus.CHUNKING:
        given = [(chunk.char_start, chunk.char_end, sha256) for chunk, sha256 in zip(made, hashes, strict=True)]
        if given and stored_chunks(connection, job.version_id) == given:
            return
        parsing = stage == VersionStatus.PARSING
        raise StageNotCurrent(job.version_id, stage, "it has no text yet" if parsing else "it has other chunks already")
    # One statement, so that the triggers count and check the version once, not once a row.
    rows = (
        func.unnest(
            cast(literal([chunk.text for chunk in made]), ARRAY(Text)),
            cast(literal([chunk.char_start for chunk in made]), ARRAY(Integer)),
            cast(literal([chunk.char_end for chunk in made]), ARRAY(Integer)),
            cast(literal([chunk.page_no for chunk in made]), ARRAY(Integer)),
            cast(literal([chunk.token_count for chunk in made]), ARRAY(Integer)),
            cast(literal(hashes), ARRAY(Text)),
        )
        .table_valued(
            "text", "char_start", "char_end", "page_no", "token_count", "text_sha256", with_ordinality="chunk_no"
        )
        .render_derived()
    )
    connection.execute(
        insert(chunks).from_select(
            [
                "version_id",
                "chunk_no",
                "text",
                "char_start",
                "char_end",
                "page_no",
                "token_count",
                "text_sha256",
            ],
            select(
                literal(job.version_id, BigInteger),
                cast(rows.c.chunk_no - 1, Integer),
                *(rows.c[name] for name in ("text", "char_start", "char_end", "page_no", "token_count", "text_sha256")),
            ).order_by(rows.c.chunk_no),
        )
    )
    connection.execute(update(versions).where(versions.c.id == job.version_id).values(status=VersionStatus.EMBEDDING))
    connection.execute(
        update(attempts)
        .where(attempts.c.id == claim.attempt_id, attempts.c.claim_token == claim.token)
        .values(stage_started_at=None)
    )
    connection.execute(
        update(jobs)
        .where(jobs.c.id == claim.job_id, jobs.c.claim_token == claim.token)
        .values(lease_expires_at=func.greatest(jobs.c.lease_expires_at, func.clock_timestamp() + DISPATCH_LEASE))
    )


def stage_of(connection: Connection, version_id: int) -> VersionStatus:
    return VersionStatus(connection.execute(select(versions.c.status).where(versions.c.id == version_id)).scalar_one())


def stored_chunks(connection: Connection, version_id: int) -> list[tuple[int, int, str]]:
    """Start, end and SHA-256 of each chunk, in order: enough to tell whether others are the same."""
    rows = connection.execute(
        select(chunks.c.char_start, chunks.c.char_end, chunks.c.text_sha256)
        .where(chunks.c.version_id == version_id)
        .order_by(chunks.c.chunk_no)
    )
    return [(row.char_start, row.char_end, row.text_sha256) for row in rows]


def load_chunks_without_embedding(
    connection: Connection, version_id: int, limit: int | None = None, after: int = -1
) -> list[ChunkToEmbed]:
    """The chunks that still need their embedding, in order: a retry pays only for these.

    Args:
        after: leave out the chunks up to this number.
    """
    rows = connection.execute(
        select(chunks.c.id, chunks.c.chunk_no, chunks.c.text, chunks.c.token_count)
        .join(versions, versions.c.id == chunks.c.version_id)
        .where(
            chunks.c.version_id == version_id,
            chunks.c.chunk_no > after,
            ~select(embeddings.c.chunk_id)
            .where(embeddings.c.chunk_id == chunks.c.id, embeddings.c.model_id == versions.c.model_id)
            .exists(),
        )
        .order_by(chunks.c.chunk_no)
        .limit(limit)
    )
    return [ChunkToEmbed(row.id, row.chunk_no, row.text, row.token_count) for row in rows]


def count_chunks_without_embedding(connection: Connection, version_id: int) -> int:
    """How many chunks still need their embedding, by the counters that completeness is judged by."""
    missing = select(versions.c.chunk_count - versions.c.embedding_count).where(versions.c.id == version_id)
    return connection.execute(missing).scalar_one()


def record_embeddings(connection: Connection, claim: Claim, chunk_ids: Sequence[int], vectors: Collection[Any]) -> bool:
    """Store a batch of embeddings; with the last one EMBEDDING → STORING. Return whether it was the last.

    A chunk that has its embedding already is passed over, so that a batch sent twice is stored once.

    Args:
        vectors: one per chunk id, in the same order, each as long as the model's dimensions.

    Raises:
        NotFound, AttemptConflict, AttemptNotCurrent, ClaimLost: the claim does not hold.
        StageNotCurrent: the version has no chunks yet.
        InvalidRequest: the vectors are more or fewer than the chunks, or not as long as the model's.
    """
    job, _ = lock_held_job(connection, claim)
    stage = stage_of(connection, job.version_id)
    if len(chunk_ids) > 0 and stage not in (VersionStatus.EMBEDDING, VersionStatus.STORING):
        raise StageNotCurrent(job.version_id, stage, "it has no chunks yet")
    model = connection.execute(
        select(models).join(versions, versions.c.model_id == models.c.id).where(versions.c.id == job.version_id)
    ).one()
    require_shape(model, chunk_ids, vectors)
    if len(chunk_ids) > 0:
        rows = (
            func.unnest(
                cast(literal(list(chunk_ids)), ARRAY(BigInteger)),
                cast(literal([Vector(vector).to_text() for vector in vectors]), ARRAY(Text)),
            )
            .table_valued("chunk_id", "vector")
            .render_derived()
        )
        connection.execute(
            insert_or_skip(embeddings)
            .from_select(
                ["chunk_id", "model_id", "version_id", "owner_id", "embedding"],
                select(
                    rows.c.chunk_id,
                    literal(model.id, BigInteger),
                    literal(job.version_id, BigInteger),
                    literal(job.owner_id, Text),
                    cast(rows.c.vector, VECTOR),
                ),
            )
            .on_conflict_do_nothing(index_elements=["chunk_id", "model_id"])
        )
    version = connection.execute(
        select(versions.c.status, versions.c.chunk_count, versions.c.embedding_count).where(
            versions.c.id == job.version_id
        )
    ).one()
    if version.status == VersionStatus.EMBEDDING and version.embedding_count == version.chunk_count:
        connection.execute(update(versions).where(versions.c.id == job.version_id).values(status=VersionStatus.STORING))
        return True
    return bool(version.status == VersionStatus.STORING)


def require_shape(model: Row[Any], chunk_ids: Sequence[int], vectors: Collection[Any]) -> None:
    """Say what is wrong with a batch before the database refuses it in the words of an index."""
    if len(chunk_ids) != len(vectors):
        raise InvalidRequest(f"{len(chunk_ids)} chunks with {len(vectors)} vectors")
    for chunk_id, vector in zip(chunk_ids, vectors, strict=True):
        if len(vector) != model.dimensions:
            raise InvalidRequest(
                f"the vector of chunk {chunk_id} has {len(vector)} dimensions; those of {model.name} have "
                f"{model.dimensions}"
            )
