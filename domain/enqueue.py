"""Accept documents: a document, a version and a job each, in the caller's transaction."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    BigInteger,
    Connection,
    Integer,
    Row,
    Select,
    Text,
    cast,
    func,
    insert,
    literal,
    or_,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.dialects.postgresql import insert as insert_or_skip
from sqlalchemy.sql.selectable import TableValuedAlias
from sqlalchemy.types import TypeEngine

from domain.errors import DocumentBusy, NotFound, RequestConflict
from domain.statuses import STAGES, DocumentStatus, VersionStatus
from domain.tables import documents, inline, jobs, models, versions
from domain.upload import Upload, distinct_names, validate

__all__ = ["Enqueued", "Upload", "enqueue_document", "enqueue_documents", "register_model"]

TRIES = 5


@dataclass(frozen=True, slots=True)
class Enqueued:
    """What became of an upload. ``unchanged``: these bytes are, or are about to be, searched already."""

    document_id: int
    version_id: int
    version_no: int
    job_id: int | None
    unchanged: bool


def register_model(connection: Connection, name: str, dimensions: int) -> int:
    """The id of the embedding model ``provider:model``; the first call also makes its vector index.

    Call it in a transaction of its own: making the index blocks writes of embeddings until the commit.
    """
    return int(connection.execute(select(func.register_model(name, dimensions))).scalar_one())


def enqueue_document(connection: Connection, upload: Upload, model_id: int) -> Enqueued:
    """Accept one document; see ``enqueue_documents``."""
    return enqueue_documents(connection, [upload], model_id)[0]


def enqueue_documents(connection: Connection, uploads: Sequence[Upload], model_id: int) -> list[Enqueued]:
    """Accept documents, thousands at once; the results are in the order of the uploads.

    Each gets a new version of the document of that name, and a PENDING job. A repeated request id returns its
    first result. Bytes that equal those of the version that will be searched in the end (the highest-numbered of
    the current one and those being built), under the same model, make no version, unless forced; a FAILED or
    CANCELLED version never makes an upload unchanged.

    Locks the documents, in the order of owner and name. Joins the caller's transaction: accepted means committed.

    Raises:
        InvalidRequest: an upload is not acceptable; nothing was written.
        NotFound: there is no such model.
        RequestConflict: a request id was used before, for other content. Roll back.
        DocumentBusy: a document of that name was deleted again and again meanwhile.
    """
    for upload in uploads:
        validate(upload)
    if connection.execute(select(models.c.id).where(models.c.id == model_id)).first() is None:
        raise NotFound("embedding model", model_id)
    results: dict[int, Enqueued] = {}
    for round_of_names in distinct_names(uploads):
        results |= enqueue_distinct(connection, {place: uploads[place] for place in round_of_names}, model_id)
    return [results[place] for place in range(len(uploads))]


def enqueue_distinct(connection: Connection, uploads: dict[int, Upload], model_id: int) -> dict[int, Enqueued]:
    """Accept uploads of different names."""
    # Repeats are answered before any document is made or locked: the document of an old request may be deleted, and
    # a new one of its name would be left without a job.
    results = repeats(connection, uploads)
    uploads = {place: upload for place, upload in uploads.items() if place not in results}
    if not uploads:
        return results
    locked = lock_documents(connection, list(uploads.values()))
    # Again under the locks: the same request may just have been accepted on another connection.
    just_accepted = repeats(connection, uploads)
    searched = searched_in_the_end(connection, [document.id for document in locked.values()])

    new: list[tuple[int, Upload, int]] = []
    for place, upload in uploads.items():
        document = locked[upload.owner_id, upload.name]
        version = searched.get(document.id)
        if place in just_accepted:
            if just_accepted[place].document_id != document.id:  # and its document deleted again
                raise DocumentBusy(f"{upload.name!r} of {upload.owner_id!r}")
            results[place] = just_accepted[place]
        elif (
            version is not None
            and not upload.force
            and upload.content_sha256 is not None
            and version.content_sha256 == upload.content_sha256
            and version.model_id == model_id
        ):
            results[place] = Enqueued(document.id, version.id, version.version_no, None, unchanged=True)
        else:
            new.append((place, upload, document.id))
    if new:
        results |= insert_versions(connection, new, model_id)
    return results


def repeats(connection: Connection, uploads: Mapping[int, Upload]) -> dict[int, Enqueued]:
    """The first results of those requests that came before, by place.

    Raises:
        RequestConflict: a request id was used before, for other content.
    """
    earlier = earlier_requests(connection, uploads.values())
    return {
        place: repeated(upload, earlier[upload.owner_id, upload.request_id])
        for place, upload in uploads.items()
        if (upload.owner_id, upload.request_id) in earlier
    }


def repeated(upload: Upload, earlier: Row[Any]) -> Enqueued:
    """The first result of a request that came again.

    Raises:
        RequestConflict: it now names other content.
    """
    same_bytes = (
        earlier.content_sha256 == upload.content_sha256
        if upload.content_sha256 is not None and earlier.content_sha256 is not None
        else earlier.storage_uri == upload.storage_uri
    )
    if earlier.name != upload.name or not same_bytes:
        raise RequestConflict(upload.request_id or "")
    return Enqueued(earlier.document_id, earlier.id, earlier.version_no, earlier.job_id, unchanged=False)


class _Deleted(Exception):
    """A document of these was deleted between looking for it and locking it."""


def lock_documents(connection: Connection, uploads: Sequence[Upload]) -> dict[tuple[str, str], Row[Any]]:
    """Find or make the documents, and lock them in the order of owner and name.

    One that is deleted meanwhile is made anew, but not under the locks of the others, which would be another order:
    they are given back at a savepoint, and it starts over.
    """
    names = as_rows(
        owner_id=(Text, [upload.owner_id for upload in uploads]),
        name=(Text, [upload.name for upload in uploads]),
    )
    for _ in range(TRIES):
        try:
            with connection.begin_nested():
                connection.execute(
                    insert_or_skip(documents)
                    .from_select(
                        ["owner_id", "name"],
                        select(names.c.owner_id, names.c.name).order_by(names.c.owner_id, names.c.name),
                    )
                    .on_conflict_do_nothing(
                        index_elements=["owner_id", "name"],
                        index_where=documents.c.status != inline(DocumentStatus.DELETED),
                    )
                )
                rows = connection.execute(
                    select(documents)
                    .join(names, (names.c.owner_id == documents.c.owner_id) & (names.c.name == documents.c.name))
                    .where(documents.c.status != inline(DocumentStatus.DELETED))
                    .order_by(documents.c.owner_id, documents.c.name)
                    .with_for_update(key_share=True, of=documents)
                ).all()
                if len(rows) < len(uploads):
                    raise _Deleted
                return {(row.owner_id, row.name): row for row in rows}
        except _Deleted:
            continue
    raise DocumentBusy(f"{uploads[0].name!r} of {uploads[0].owner_id!r}")


def earlier_requests(connection: Connection, uploads: Iterable[Upload]) -> dict[tuple[str, str | None], Row[Any]]:
    """The versions that these request ids made before, with their first job."""
    keys = [(upload.owner_id, upload.request_id) for upload in uploads if upload.request_id is not None]
    if not keys:
        return {}
    requests = as_rows(
        owner_id=(Text, [owner for owner, _ in keys]),
        request_id=(Text, [request_id for _, request_id in keys]),
    )
    first_job = select(func.min(jobs.c.id)).where(jobs.c.version_id == versions.c.id).scalar_subquery()
    rows = connection.execute(
        select(versions, documents.c.name, first_job.label("job_id"))
        .join(documents, documents.c.id == versions.c.document_id)
        .join(
            requests,
            (versions.c.owner_id == requests.c.owner_id) & (versions.c.request_id == requests.c.request_id),
        )
    )
    return {(row.owner_id, row.request_id): row for row in rows}


def searched_in_the_end(connection: Connection, document_ids: Sequence[int]) -> dict[int, Row[Any]]:
    """For each document the highest-numbered of its current version and those being built."""
    rows = connection.execute(
        select(versions)
        .join(documents, documents.c.id == versions.c.document_id)
        .where(
            versions.c.document_id.in_(array_of(BigInteger, document_ids)),
            or_(
                versions.c.id == documents.c.current_version_id,
                versions.c.status.in_([VersionStatus.UPLOADED, *STAGES]),
            ),
        )
        .order_by(versions.c.document_id, versions.c.version_no)
    )
    return {row.document_id: row for row in rows}


def insert_versions(
    connection: Connection, new: Sequence[tuple[int, Upload, int]], model_id: int
) -> dict[int, Enqueued]:
    """Make a version and a job for each of these uploads; their documents are locked."""
    uploads = [upload for _, upload, _ in new]
    rows = as_rows(
        document_id=(BigInteger, [document_id for _, _, document_id in new]),
        owner_id=(Text, [upload.owner_id for upload in uploads]),
        storage_uri=(Text, [upload.storage_uri for upload in uploads]),
        content_sha256=(Text, [upload.content_sha256 for upload in uploads]),
        media_type=(Text, [upload.media_type for upload in uploads]),
        size_bytes=(BigInteger, [upload.size_bytes for upload in uploads]),
        request_id=(Text, [upload.request_id for upload in uploads]),
        max_retry_count=(Integer, [upload.max_retry_count for upload in uploads]),
    )
    next_no = (
        select(func.coalesce(func.max(versions.c.version_no), 0) + 1)
        .where(versions.c.document_id == rows.c.document_id)
        .scalar_subquery()
    )
    copied = [
        "document_id",
        "owner_id",
        "storage_uri",
        "content_sha256",
        "media_type",
        "size_bytes",
        "request_id",
    ]
    made = {
        row.document_id: row
        for row in connection.execute(
            insert_or_skip(versions)
            .from_select(
                [*copied, "version_no", "model_id"],
                # Two that insert the same request ids wait for each other in one order.
                select(*(rows.c[name] for name in copied), next_no, literal(model_id, BigInteger)).order_by(
                    rows.c.owner_id, rows.c.request_id
                ),
            )
            # Only another document can have used the request id since it was looked up: this one is locked.
            .on_conflict_do_nothing(index_elements=["owner_id", "request_id"])
            .returning(versions.c.id, versions.c.document_id, versions.c.version_no)
        )
    }
    for _, upload, document_id in new:
        if document_id not in made:
            raise RequestConflict(upload.request_id or "")
    made_jobs = {
        row.document_id: row.id
        for row in connection.execute(
            insert(jobs)
            .from_select(
                ["version_id", "document_id", "owner_id", "max_retry_count"],
                select(versions.c.id, versions.c.document_id, versions.c.owner_id, rows.c.max_retry_count)
                .join(rows, rows.c.document_id == versions.c.document_id)
                .where(versions.c.id.in_(array_of(BigInteger, [row.id for row in made.values()])))
                .order_by(rows.c.place),  # the first upload is due first
            )
            .returning(jobs.c.id, jobs.c.document_id)
        )
    }
    connection.execute(
        update(documents)
        .where(
            documents.c.id.in_(array_of(BigInteger, list(made))),
            documents.c.status.in_([DocumentStatus.FAILED, DocumentStatus.CANCELLED]),
        )
        .values(status=DocumentStatus.PENDING)
    )
    return {
        place: Enqueued(
            document_id,
            made[document_id].id,
            made[document_id].version_no,
            made_jobs[document_id],
            unchanged=False,
        )
        for place, _, document_id in new
    }


def array_of(kind: type[TypeEngine[Any]], values: Sequence[object]) -> Select[Any]:
    """Values for IN as one array parameter: a parameter each would run into the protocol's limit of 65,535."""
    return select(func.unnest(cast(literal(values), ARRAY(kind))))


def as_rows(**columns: tuple[type[TypeEngine[Any]], Sequence[object]]) -> TableValuedAlias:
    """Columns of values, all equally long, as a table; ``place`` counts its rows from 1."""
    arrays = (cast(literal(values), ARRAY(kind)) for kind, values in columns.values())
    return func.unnest(*arrays).table_valued(*columns, with_ordinality="place").render_derived()
