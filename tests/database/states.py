"""Rows in any state, put there legally; what a commit would check has passed."""

from collections.abc import Callable

from sqlalchemy import Connection

from domain.statuses import AttemptStatus, DocumentStatus, JobStatus, VersionStatus
from tests.database.lifecycle import (
    DIMENSIONS,
    Indexing,
    cancel,
    claim,
    complete,
    delete,
    fail,
    release,
    to_chunking,
    to_embedding,
    to_storing,
    upload,
)
from tests.database.refusals import commit_checks

_FORWARD: dict[VersionStatus, Callable[[Connection, Indexing], None]] = {
    VersionStatus.CHUNKING: to_chunking,
    VersionStatus.EMBEDDING: to_embedding,
    VersionStatus.STORING: to_storing,
    VersionStatus.INDEXED: complete,
}


def version_in(
    connection: Connection,
    status: VersionStatus,
    stopped_stage: VersionStatus = VersionStatus.STORING,
    document_id: int | None = None,
    dimensions: int = DIMENSIONS,
) -> Indexing:
    """A version of this status: claimed while in a stage; FAILED or CANCELLED at ``stopped_stage``."""
    made = upload(connection, document_id, dimensions=dimensions)
    stopped = status in (VersionStatus.FAILED, VersionStatus.CANCELLED)
    target = stopped_stage if stopped else status
    if target != VersionStatus.UPLOADED:
        made = claim(connection, made)
        for stage, step in _FORWARD.items():
            if list(VersionStatus).index(stage) <= list(VersionStatus).index(target):
                step(connection, made)
    if status == VersionStatus.FAILED:
        fail(connection, made)
    elif status == VersionStatus.CANCELLED:
        cancel(connection, made)
    commit_checks(connection)
    return made


def document_in(connection: Connection, status: DocumentStatus) -> Indexing:
    """A document of this status with one version; a stopped one has content left."""
    if status == DocumentStatus.PENDING:
        return version_in(connection, VersionStatus.STORING)
    if status == DocumentStatus.DELETED:
        made = version_in(connection, VersionStatus.INDEXED)
        delete(connection, made)
        commit_checks(connection)
        return made
    return version_in(connection, VersionStatus(status))


def job_in(connection: Connection, status: JobStatus) -> Indexing:
    """A job of this status; a PENDING one is due, a PROCESSING one stores."""
    if status == JobStatus.PENDING:
        return version_in(connection, VersionStatus.UPLOADED)
    if status == JobStatus.PROCESSING:
        return version_in(connection, VersionStatus.STORING)
    return version_in(connection, VersionStatus(status))


def attempt_in(connection: Connection, status: AttemptStatus) -> Indexing:
    """An attempt of this status; a STARTED one stores."""
    if status == AttemptStatus.STARTED:
        return version_in(connection, VersionStatus.STORING)
    if status == AttemptStatus.RELEASED:
        made = version_in(connection, VersionStatus.STORING)
        release(connection, made)
        commit_checks(connection)
        return made
    return version_in(connection, VersionStatus(status))
