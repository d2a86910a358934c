"""What may be asked of documents: what is searchable now, what is being built, and how far it is.

Each answer is one statement of one snapshot, bounded by ``limit`` and backed by an index. ``domain.processing`` has
the cheap questions about many documents, ``domain.history`` the events, attempts and failures.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, RowMapping, Select, select, true

from domain.errors import InvalidRequest, NotFound
from domain.progress import (
    StageTime,
    VersionProgress,
    newest_live_version,
    newest_version,
    progress,
    stage_times,
)
from domain.statuses import DocumentStatus, VersionStatus
from domain.tables import documents, versions

LARGEST_PAGE = 1000


@dataclass(frozen=True, slots=True)
class SearchableVersion:
    """The version that a search finds now."""

    version_id: int
    version_no: int
    indexed_at: datetime
    chunk_count: int


@dataclass(frozen=True, slots=True)
class DocumentView:
    """A document as a person asks for it.

    ``being_built`` is its newest version with a live job; ``stopped`` its newest version, where that FAILED or
    was CANCELLED. ``stage_times`` are of the version being built, else of the newest.
    """

    document_id: int
    owner_id: str
    name: str
    status: DocumentStatus
    searchable: SearchableVersion | None
    being_built: VersionProgress | None
    stopped: VersionProgress | None
    stage_times: tuple[StageTime, ...]
    created_at: datetime
    updated_at: datetime


def document_view(connection: Connection, document_id: int, owner_id: str | None = None) -> DocumentView:
    """One document. For its owner a deleted one is gone; an operator (``owner_id`` None) still sees it.

    Raises:
        NotFound: no such document, or not this owner's.
    """
    one = select(documents).where(documents.c.id == document_id)
    if owner_id is not None:
        one = one.where(documents.c.owner_id == owner_id, documents.c.status != DocumentStatus.DELETED)
    row = connection.execute(views_of(one)).one_or_none()
    if row is None:
        raise NotFound("document", document_id)
    return view(row._mapping)


def list_documents(
    connection: Connection,
    owner_id: str | None = None,
    limit: int = 50,
    after: int | None = None,
    status: DocumentStatus | None = None,
) -> list[DocumentView]:
    """A page of documents, the newest first, without the deleted ones unless their status is asked for.

    Args:
        owner_id: whose; None for everybody's.
        after: the last ``document_id`` of the page before.

    Raises:
        InvalidRequest: ``limit`` is not from 1 to 1,000.
    """
    require_page(limit)
    page = select(documents).order_by(documents.c.id.desc()).limit(limit)
    page = page.where(documents.c.status == status if status else documents.c.status != DocumentStatus.DELETED)
    if owner_id is not None:
        page = page.where(documents.c.owner_id == owner_id)
    if after is not None:
        page = page.where(documents.c.id < after)
    return [view(row._mapping) for row in connection.execute(views_of(page))]


def require_page(limit: int) -> None:
    if not 1 <= limit <= LARGEST_PAGE:
        raise InvalidRequest(f"limit must be from 1 to {LARGEST_PAGE}: {limit}")


def views_of(chosen: Select[Any]) -> Select[Any]:
    """One statement that finds all a view needs for these documents."""
    document = chosen.subquery("document")
    current = versions.alias("current")
    live = newest_live_version(document).lateral("live")
    newest = newest_version(document).lateral("newest")
    times = stage_times(document, live, newest).lateral("times")
    return (
        select(
            document,
            current.c.version_no,
            current.c.indexed_at,
            current.c.chunk_count,
            *(column.label(f"live_{column.key}") for column in live.c),
            *(column.label(f"newest_{column.key}") for column in newest.c),
            times.c.stages,
            times.c.finished,
            times.c.elapsed,
        )
        .select_from(document)
        .outerjoin(current, current.c.id == document.c.current_version_id)
        .outerjoin(live, true())
        .outerjoin(newest, true())
        .outerjoin(times, true())
        .order_by(document.c.id.desc())
    )


def view(row: RowMapping) -> DocumentView:
    times = tuple(
        StageTime(VersionStatus(stage), finished_at, elapsed)
        for stage, finished_at, elapsed in zip(
            row["stages"] or (), row["finished"] or (), row["elapsed"] or (), strict=True
        )
    )
    newest_stopped = row["newest_status"] in (VersionStatus.FAILED, VersionStatus.CANCELLED)
    return DocumentView(
        document_id=row["id"],
        owner_id=row["owner_id"],
        name=row["name"],
        status=DocumentStatus(row["status"]),
        searchable=SearchableVersion(
            row["current_version_id"], row["version_no"], row["indexed_at"], row["chunk_count"]
        )
        if row["current_version_id"] is not None
        else None,
        being_built=progress(row, "live_", times) if row["live_version_id"] is not None else None,
        stopped=progress(row, "newest_", times) if newest_stopped else None,
        stage_times=times,
        created_at=row["created_at"],
        updated_at=row["updated_at"],
    )
