"""Rules about content and history, judged on the newest rows only: 10, 14, 15 and 18 of the state machine.

There may be a hundred million embeddings. What is written wrongly is found while it is among the newest; what rots
later is found by judging everything, ``newest`` None, which reads every chunk and every embedding.
"""

from typing import Any

from sqlalchemy import ColumnElement, FromClause, Text, and_, case, cast, column, func, not_, or_, select, true, values

from domain.failures import FailureType
from domain.rule import RENEW, REPAIR, Rule
from domain.statuses import AttemptStatus, EmbeddingStatus, VersionStatus
from domain.tables import (
    attempts,
    chunks,
    documents,
    embeddings,
    events,
    jobs,
    models,
    policies,
    processing_failures,
    versions,
)

# Of the newest versions so many that these chunks and embeddings are not passed: a few giants would take minutes.
COUNTED_ROWS = 500_000

LEADS_TO = {
    VersionStatus.UPLOADED: "FILE_UPLOADED",
    VersionStatus.PARSING: "CLAIMED",
    VersionStatus.CHUNKING: "PARSING_COMPLETED",
    VersionStatus.EMBEDDING: "CHUNKING_COMPLETED",
    VersionStatus.STORING: "EMBEDDING_COMPLETED",
    VersionStatus.INDEXED: "INDEXED",
    VersionStatus.FAILED: "FAILED",
    VersionStatus.CANCELLED: "CANCELLED",
}


def content_rules(newest: int | None) -> list[Rule]:
    return [
        *counter_rules(newest),
        *vector_and_text_rules(newest),
        *history_rules(newest),
        policies_cover_every_failure_type(),
    ]


def newest_of(table: Any, newest: int | None) -> FromClause:
    return select(table).order_by(table.c.id.desc()).limit(newest).subquery("newest")


def newest_versions(newest: int | None) -> FromClause:
    """The newest versions, as many as have together no more than COUNTED_ROWS rows of content, and one more."""
    newest_ = newest_of(versions, newest)
    if newest is None:
        return newest_
    content = newest_.c.chunk_count + newest_.c.embedding_count
    before = func.sum(content).over(order_by=newest_.c.id.desc()) - content
    counted = select(newest_, before.label("before")).subquery()
    return select(counted).where(counted.c.before <= COUNTED_ROWS).subquery("version")


def counter_rules(newest: int | None) -> list[Rule]:
    version = newest_versions(newest)
    of_chunks = select(func.count().label("rows")).where(chunks.c.version_id == version.c.id).lateral("counted")
    of_embeddings = (
        select(
            func.count().label("rows"),
            func.count().filter(embeddings.c.status == EmbeddingStatus.ACTIVE).label("active"),
        )
        .where(embeddings.c.version_id == version.c.id)
        .lateral("counted")
    )
    identity = (version.c.id.label("row_id"), version.c.document_id)
    return [
        Rule(
            "versions_chunk_count_counts_chunks",
            "document_versions",
            select(*identity, version.c.chunk_count, of_chunks.c.rows)
            .select_from(version)
            .join(of_chunks, true())
            .where(version.c.chunk_count != of_chunks.c.rows),
            "counts {chunk_count} chunks and has {rows}",
            RENEW,
        ),
        Rule(
            "versions_embedding_count_counts_embeddings",
            "document_versions",
            select(
                *identity,
                version.c.embedding_count,
                version.c.active_embedding_count,
                of_embeddings.c.rows,
                of_embeddings.c.active,
            )
            .select_from(version)
            .join(of_embeddings, true())
            .where(
                or_(
                    version.c.embedding_count != of_embeddings.c.rows,
                    version.c.active_embedding_count != of_embeddings.c.active,
                )
            ),
            "counts {embedding_count} embeddings, {active_embedding_count} of them ACTIVE, and has {rows} and {active}",
            RENEW,
        ),
    ]


def vector_and_text_rules(newest: int | None) -> list[Rule]:
    embedding = (
        select(embeddings.c.chunk_id, embeddings.c.model_id, embeddings.c.version_id, embeddings.c.embedding)
        .order_by(embeddings.c.chunk_id.desc())
        .limit(newest)
        .subquery("newest")
    )
    given = func.vector_dims(embedding.c.embedding)
    chunk = newest_of(chunks, newest)
    sha256 = func.encode(func.sha256(func.convert_to(chunk.c.text, "UTF8")), "hex")
    return [
        Rule(
            "embeddings_have_models_dimensions",
            "embeddings",
            select(embedding.c.chunk_id.label("row_id"), given.label("given"), models.c.name, models.c.dimensions)
            .select_from(embedding)
            .join(models, models.c.id == embedding.c.model_id)
            .where(given != models.c.dimensions),
            "has {given} dimensions; {name} has {dimensions}",
            RENEW,
        ),
        Rule(
            "chunks_never_change",
            "chunks",
            select(chunk.c.id.label("row_id"), chunk.c.version_id).where(sha256 != chunk.c.text_sha256),
            "is not the text it was: its SHA-256 is another, and its embedding is of the old text",
            RENEW,
        ),
    ]


def history_rules(newest: int | None) -> list[Rule]:
    """What the triggers should have written. ``prune`` takes old events away, so only where some are left."""
    version, attempt, failure = (newest_of(table, newest) for table in (versions, attempts, processing_failures))
    document = newest_of(documents, newest)

    of_version = and_(events.c.document_id == version.c.document_id, events.c.version_id == version.c.id)
    leads_to = case(LEADS_TO, value=version.c.status)
    led = or_(events.c.type == leads_to, and_(events.c.type == "MANUAL_RETRY", events.c.stage == version.c.status))
    of_job = or_(events.c.job_id.is_not(None), events.c.type == "FILE_UPLOADED")

    of_attempt = and_(events.c.document_id == jobs.c.document_id, events.c.attempt_id == attempt.c.id)
    failed = attempt.c.status == AttemptStatus.FAILED

    def latest(which: ColumnElement[bool], name: str) -> FromClause:
        return (
            select(events.c.type, events.c.version_id)
            .where(events.c.document_id == document.c.id, which)
            .order_by(events.c.id.desc())
            .limit(1)
            .lateral(name)
        )

    status = latest(events.c.type.startswith("DOCUMENT_", autoescape=True), "status")
    pointer = latest(events.c.type == "CURRENT_CHANGED", "pointer")
    recorded = func.jsonb_array_length(failure.c.errors)
    real = (
        select(func.count())
        .where(attempts.c.job_id == failure.c.job_id, attempts.c.status == AttemptStatus.FAILED)
        .scalar_subquery()
    )
    return [
        Rule(
            "versions_history",
            "document_versions",
            select(version.c.id.label("row_id"), version.c.status).where(
                select(events.c.id).where(of_version, of_job).exists(),
                not_(select(events.c.id).where(of_version, led).exists()),
            ),
            "is {status}, and no event says how it came to be",
            REPAIR,
        ),
        Rule(
            "attempts_history",
            "indexing_attempts",
            select(attempt.c.id.label("row_id"), attempt.c.status)
            .select_from(attempt)
            .join(jobs, jobs.c.id == attempt.c.job_id)
            .where(
                or_(
                    and_(attempt.c.status == AttemptStatus.STARTED, not_(has_event(of_attempt, "CLAIMED"))),
                    and_(
                        select(events.c.id).where(of_attempt).exists(),
                        or_(
                            and_(
                                attempt.c.status == AttemptStatus.RELEASED,
                                not_(has_event(of_attempt, "RELEASED")),
                            ),
                            and_(failed, not_(has_event(of_attempt, attempt.c.failed_stage + "_FAILED"))),
                            and_(failed, not_(has_event(of_attempt, attempt.c.outcome))),
                        ),
                    ),
                )
            ),
            "is {status}, and an event of it is missing",
            REPAIR,
        ),
        Rule(
            "documents_history",
            "documents",
            select(document.c.id.label("row_id"), document.c.status)
            .select_from(document)
            .outerjoin(status, true())
            .outerjoin(pointer, true())
            .where(
                or_(
                    status.c.type != "DOCUMENT_" + document.c.status,
                    and_(
                        pointer.c.type.is_not(None),
                        pointer.c.version_id.is_distinct_from(document.c.current_version_id),
                    ),
                )
            ),
            "is {status} with another current version or status than its last event says",
            REPAIR,
        ),
        Rule(
            "failures_never_change",
            "processing_failures",
            select(failure.c.id.label("row_id"), recorded.label("recorded"), real.label("real")).where(
                recorded != real
            ),
            "lists {recorded} errors; its job has {real} failed attempts",
            REPAIR,
        ),
    ]


def has_event(which: ColumnElement[bool], type_: Any) -> ColumnElement[bool]:
    return select(events.c.id).where(which, events.c.type == type_).exists()


def policies_cover_every_failure_type() -> Rule:
    known = values(column("type", Text), name="known").data([(failure_type.value,) for failure_type in FailureType])
    return Rule(
        "policies_cover_every_failure_type",
        "failure_policies",
        select(cast(known.c.type, Text).label("row_id"))
        .select_from(known)
        .outerjoin(policies, policies.c.failure_type == known.c.type)
        .where(policies.c.failure_type.is_(None)),
        "is missing: a failure of this type cannot be recorded",
        "INSERT INTO failure_policies (failure_type, retryable) VALUES ('{row_id}', true)",
    )
