"""Every status a row can have: one StrEnum per table, held equal to the table's CHECK by a test."""

from enum import StrEnum


class DocumentStatus(StrEnum):
    PENDING = "PENDING"
    INDEXED = "INDEXED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    DELETED = "DELETED"


class VersionStatus(StrEnum):
    UPLOADED = "UPLOADED"
    PARSING = "PARSING"
    CHUNKING = "CHUNKING"
    EMBEDDING = "EMBEDDING"
    STORING = "STORING"
    INDEXED = "INDEXED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


class JobStatus(StrEnum):
    PENDING = "PENDING"
    PROCESSING = "PROCESSING"
    INDEXED = "INDEXED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


class AttemptStatus(StrEnum):
    STARTED = "STARTED"
    INDEXED = "INDEXED"
    FAILED = "FAILED"
    RELEASED = "RELEASED"
    CANCELLED = "CANCELLED"


class Outcome(StrEnum):
    """What a failed attempt means for its job, decided by the database when the failure is recorded."""

    RETRY = "RETRY"
    FAILED = "FAILED"


class EmbeddingStatus(StrEnum):
    ACTIVE = "ACTIVE"
    STALE = "STALE"


class Task(StrEnum):
    """The Celery task, and the queue, that runs a version's stage."""

    PARSE = "parse"  # PARSING, CHUNKING
    EMBED = "embed"  # EMBEDDING, STORING


STAGES = (VersionStatus.PARSING, VersionStatus.CHUNKING, VersionStatus.EMBEDDING, VersionStatus.STORING)
