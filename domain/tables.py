"""The tables as Core sees them: names and types only.

Keys, checks, defaults and indexes are in ``migrations/versions``; a test holds columns, types and nullability equal.
"""

from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any
from uuid import UUID

from pgvector.sqlalchemy import VECTOR
from sqlalchemy import (
    ARRAY,
    BigInteger,
    BindParameter,
    Column,
    Computed,
    DateTime,
    Integer,
    Interval,
    MetaData,
    Named,
    Numeric,
    Table,
    Text,
    TypedColumns,
    Uuid,
    literal,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.types import UserDefinedType

from domain.statuses import JobStatus

metadata = MetaData()

TIME = DateTime(timezone=True)


class Xid8(UserDefinedType[str]):
    """A transaction id that never wraps around; it comes as decimal digits."""

    cache_ok = True

    def get_col_spec(self, **_options: object) -> str:
        return "xid8"


class DocumentColumns(TypedColumns):
    id: Named[int] = Column(BigInteger, primary_key=True)
    owner_id: Named[str] = Column(Text)
    name: Named[str] = Column(Text)
    status: Named[str] = Column(Text)
    current_version_id: Named[int | None] = Column(BigInteger)
    created_at: Named[datetime] = Column(TIME)
    updated_at: Named[datetime] = Column(TIME)


class VersionColumns(TypedColumns):
    id: Named[int] = Column(BigInteger, primary_key=True)
    document_id: Named[int] = Column(BigInteger)
    owner_id: Named[str] = Column(Text)
    version_no: Named[int] = Column(Integer)
    status: Named[str] = Column(Text)
    stopped_stage: Named[str | None] = Column(Text)
    storage_uri: Named[str] = Column(Text)
    content_sha256: Named[str | None] = Column(Text)
    media_type: Named[str | None] = Column(Text)
    size_bytes: Named[int | None] = Column(BigInteger)
    model_id: Named[int] = Column(BigInteger)
    request_id: Named[str | None] = Column(Text)
    created_at: Named[datetime] = Column(TIME)
    indexed_at: Named[datetime | None] = Column(TIME)
    chunk_count: Named[int] = Column(Integer)
    embedding_count: Named[int] = Column(Integer)
    active_embedding_count: Named[int] = Column(Integer)


class JobColumns(TypedColumns):
    id: Named[int] = Column(BigInteger, primary_key=True)
    version_id: Named[int] = Column(BigInteger)
    document_id: Named[int] = Column(BigInteger)
    owner_id: Named[str] = Column(Text)
    task: Named[str] = Column(Text)
    status: Named[str] = Column(Text)
    attempt_no: Named[int] = Column(Integer)
    retry_count: Named[int] = Column(Integer)
    max_retry_count: Named[int] = Column(Integer)
    next_retry_at: Named[datetime | None] = Column(TIME)
    due_at: Named[datetime] = Column(TIME, Computed("COALESCE(next_retry_at, created_at)", persisted=True))
    worker_id: Named[int | None] = Column(BigInteger)
    claim_token: Named[UUID | None] = Column(Uuid)
    lease_expires_at: Named[datetime | None] = Column(TIME)
    last_failure_type: Named[str | None] = Column(Text)
    last_failure_reason: Named[str | None] = Column(Text)
    last_error_message: Named[str | None] = Column(Text)
    last_failed_at: Named[datetime | None] = Column(TIME)
    created_at: Named[datetime] = Column(TIME)
    updated_at: Named[datetime] = Column(TIME)


class AttemptColumns(TypedColumns):
    id: Named[int] = Column(BigInteger, primary_key=True)
    job_id: Named[int] = Column(BigInteger)
    attempt_no: Named[int] = Column(Integer)
    worker_id: Named[int] = Column(BigInteger)
    run_by: Named[int | None] = Column(BigInteger)
    claim_token: Named[UUID] = Column(Uuid)
    status: Named[str] = Column(Text)
    started_at: Named[datetime] = Column(TIME)
    stage_started_at: Named[datetime | None] = Column(TIME)
    finished_at: Named[datetime | None] = Column(TIME)
    failed_stage: Named[str | None] = Column(Text)
    failure_type: Named[str | None] = Column(Text)
    failure_reason: Named[str | None] = Column(Text)
    error_message: Named[str | None] = Column(Text)
    retryable: Named[bool | None]
    outcome: Named[str | None] = Column(Text)
    retry_count: Named[int | None] = Column(Integer)
    max_retry_count: Named[int | None] = Column(Integer)
    next_retry_at: Named[datetime | None] = Column(TIME)
    retry_after: Named[timedelta | None] = Column(Interval)


class ParsedTextColumns(TypedColumns):
    version_id: Named[int] = Column(BigInteger, primary_key=True)
    text: Named[str] = Column(Text)
    page_starts: Named[list[int]] = Column(ARRAY(Integer))
    title: Named[str | None] = Column(Text)
    metadata_: Named[dict[str, Any]] = Column("metadata", JSONB)


class ChunkColumns(TypedColumns):
    id: Named[int] = Column(BigInteger, primary_key=True)
    version_id: Named[int] = Column(BigInteger)
    chunk_no: Named[int] = Column(Integer)
    text: Named[str] = Column(Text)
    char_start: Named[int] = Column(Integer)
    char_end: Named[int] = Column(Integer)
    page_no: Named[int | None] = Column(Integer)
    token_count: Named[int] = Column(Integer)
    text_sha256: Named[str] = Column(Text)


class ModelColumns(TypedColumns):
    id: Named[int] = Column(BigInteger, primary_key=True)
    name: Named[str] = Column(Text)
    dimensions: Named[int] = Column(Integer)


class EmbeddingColumns(TypedColumns):
    chunk_id: Named[int] = Column(BigInteger, primary_key=True)
    model_id: Named[int] = Column(BigInteger, primary_key=True)
    version_id: Named[int] = Column(BigInteger)
    owner_id: Named[str] = Column(Text)
    status: Named[str] = Column(Text)
    embedding: Named[Any] = Column(VECTOR, nullable=False)
    created_at: Named[datetime] = Column(TIME)


class PolicyColumns(TypedColumns):
    failure_type: Named[str] = Column(Text, primary_key=True)
    retryable: Named[bool]
    base_delay: Named[timedelta] = Column(Interval)
    factor: Named[Decimal] = Column(Numeric)
    max_delay: Named[timedelta] = Column(Interval)


class EventColumns(TypedColumns):
    id: Named[int] = Column(BigInteger, primary_key=True)
    document_id: Named[int] = Column(BigInteger)
    version_id: Named[int | None] = Column(BigInteger)
    job_id: Named[int | None] = Column(BigInteger)
    attempt_id: Named[int | None] = Column(BigInteger)
    type: Named[str] = Column(Text)
    stage: Named[str | None] = Column(Text)
    detail: Named[dict[str, Any]] = Column(JSONB)
    created_at: Named[datetime] = Column(TIME)


class ProcessingFailureColumns(TypedColumns):
    id: Named[int] = Column(BigInteger, primary_key=True)
    document_id: Named[int] = Column(BigInteger)
    version_id: Named[int] = Column(BigInteger)
    job_id: Named[int] = Column(BigInteger)
    owner_id: Named[str] = Column(Text)
    stage: Named[str] = Column(Text)
    failure_type: Named[str] = Column(Text)
    retry_count: Named[int] = Column(Integer)
    errors: Named[list[dict[str, Any]]] = Column(JSONB)
    created_at: Named[datetime] = Column(TIME)
    final_failed_at: Named[datetime] = Column(TIME)


class NotificationColumns(TypedColumns):
    id: Named[int] = Column(BigInteger, primary_key=True)
    owner_id: Named[str] = Column(Text)
    document_id: Named[int] = Column(BigInteger)
    version_id: Named[int] = Column(BigInteger)
    type: Named[str] = Column(Text)
    payload: Named[dict[str, Any]] = Column(JSONB)
    transaction_id: Named[str] = Column(Xid8)
    created_at: Named[datetime] = Column(TIME)
    read_at: Named[datetime | None] = Column(TIME)


class WorkerColumns(TypedColumns):
    id: Named[int] = Column(BigInteger, primary_key=True)
    name: Named[str] = Column(Text)
    queues: Named[list[str]] = Column(ARRAY(Text))
    concurrency: Named[int] = Column(Integer)
    started_at: Named[datetime] = Column(TIME)
    last_seen_at: Named[datetime] = Column(TIME)
    stopped_at: Named[datetime | None] = Column(TIME)


class ClaimHintColumns(TypedColumns):
    only_row: Named[bool] = Column(primary_key=True)
    sent_at: Named[datetime] = Column(TIME)


documents = Table("documents", metadata, DocumentColumns)
versions = Table("document_versions", metadata, VersionColumns)
jobs = Table("embedding_jobs", metadata, JobColumns)
attempts = Table("indexing_attempts", metadata, AttemptColumns)
parsed_texts = Table("parsed_texts", metadata, ParsedTextColumns)
chunks = Table("chunks", metadata, ChunkColumns)
models = Table("embedding_models", metadata, ModelColumns)
embeddings = Table("embeddings", metadata, EmbeddingColumns)
policies = Table("failure_policies", metadata, PolicyColumns)
events = Table("indexing_events", metadata, EventColumns)
processing_failures = Table("processing_failures", metadata, ProcessingFailureColumns)
notifications = Table("notifications", metadata, NotificationColumns)
workers = Table("workers", metadata, WorkerColumns)
claim_hints = Table("claim_hints", metadata, ClaimHintColumns)


def is_storable(text: str) -> bool:
    """Whether PostgreSQL can store the text: it has neither a NUL nor half a character."""
    return not any(character == "\x00" or "\ud800" <= character <= "\udfff" for character in text)


def inline(status: StrEnum) -> BindParameter[str]:
    """A status written into the SQL: behind a parameter the planner cannot prove that a partial index applies."""
    return literal(status.value, Text, literal_execute=True)


JOB_IS_LIVE = jobs.c.status.in_([inline(JobStatus.PENDING), inline(JobStatus.PROCESSING)])
