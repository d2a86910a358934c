"""Accept documents: a document, a version and a job each, in the caller's transaction."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

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
    or_,
    select,
    tuple_,
    update,
)
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.dialects.postgresql import insert as insert_or_skip

from domain.errors import DocumentBusy, InvalidRequest, RequestConflict
from domain.statuses import STAGES, DocumentStatus, VersionStatus
from domain.tables import documents, inline, jobs, versions

TRIES = 5


@dataclass(frozen=True, slots=True)
class Upload:
    """What is to be indexed.

    Args:
        name: what the owner calls it: a path, a key, a URL. The same name again is a new version.
        content_sha256: of the bytes, in hex. Without it, nothing can be recognised as unchanged.
        request_id: makes the upload safe to repeat; unique per owner.
        force: index the bytes again even if they are unchanged.
    """

    owner_id: str
    name: str
    storage_uri: str
    content_sha256: str | None = None
    request_id: str | None = None
    max_retry_count: int = 3
    force: bool = False
    media_type: str | None = None
    size_bytes: int | None = None


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
        RequestConflict: a request id was used before, for other content. Roll back.
        DocumentBusy: a document of that name was deleted again and again meanwhile.
    """
    for upload in uploads:
        validate(upload)
    results: dict[int, Enqueued] = {}
    for round_of_names in distinct_names(uploads):
        results |= enqueue_distinct(connection, {place: uploads[place] for place in round_of_names}, model_id)
    return [results[place] for place in range(len(uploads))]


def validate(upload: Upload) -> None:
    """Refuse what the tables would refuse, in words for the caller."""
    texts = {
        "owner_id": upload.owner_id,
        "name": upload.name,
        "storage_uri": upload.storage_uri,
        "request_id": upload.request_id,
        "media_type": upload.media_type,
    }
    for field, text in texts.items():
        if text is None:
            continue
        if "\x00" in text or any("\ud800" <= character <= "\udfff" for character in text):
            raise InvalidRequest(f"{field} holds a NUL or half a character, which PostgreSQL cannot store")
        if text.strip() == "":
            raise InvalidRequest(f"{field} is blank")
    if len(upload.name.encode()) > 1024:
        raise InvalidRequest(f"name is {len(upload.name.encode())} bytes long; at most 1,024 are stored")
    for field in ("owner_id", "request_id", "media_type"):
        if len(texts[field] or "") > 255:
            raise InvalidRequest(f"{field} is longer than 255 characters")
    if len(upload.storage_uri) > 4096:
        raise InvalidRequest("storage_uri is longer than 4,096 characters")
    sha256 = upload.content_sha256
    if sha256 is not None and not (len(sha256) == 64 and set(sha256) <= set("0123456789abcdef")):
        raise InvalidRequest("content_sha256 is not 64 lower-case hexadecimal digits")
    if not 0 <= upload.max_retry_count <= 1000:
        raise InvalidRequest("max_retry_count is not between 0 and 1,000")
    if upload.size_bytes is not None and upload.size_bytes < 0:
        raise InvalidRequest("size_bytes is negative")


def distinct_names(uploads: Sequence[Upload]) -> Iterator[list[int]]:
    """Places of uploads in rounds with no name twice: a name given twice becomes two versions, in their order."""
    waiting = list(range(len(uploads)))
    while waiting:
        taken: set[tuple[str, str]] = set()
        later: list[int] = []
        now: list[int] = []
        for place in waiting:
            key = (uploads[place].owner_id, uploads[place].name)
            (later if key in taken else now).append(place)
            taken.add(key)
        yield now
        waiting = later


def enqueue_distinct(connection: Connection, uploads: dict[int, Upload], model_id: int) -> dict[int, Enqueued]:
    """Accept uploads of different names."""
    locked = lock_documents(connection, list(uploads.values()))
    requested = earlier_requests(connection, list(uploads.values()))
    searched = searched_in_the_end(connection, [document.id for document in locked.values()])

    results: dict[int, Enqueued] = {}
    new: list[tuple[int, Upload, int]] = []
    for place, upload in uploads.items():
        document = locked[upload.owner_id, upload.name]
        earlier = requested.get((upload.owner_id, upload.request_id))
        version = searched.get(document.id)
        if earlier is not None:
            results[place] = repeated(upload, earlier)
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


def lock_documents(connection: Connection, uploads: Sequence[Upload]) -> dict[tuple[str, str], Row[Any]]:
    """Find or make the documents, and lock them in the order of owner and name."""
    locked: dict[tuple[str, str], Row[Any]] = {}
    missing = {(upload.owner_id, upload.name) for upload in uploads}
    for _ in range(TRIES):
        names = (
            func.unnest(
                cast(literal([owner for owner, _ in missing]), ARRAY(Text)),
                cast(literal([name for _, name in missing]), ARRAY(Text)),
            )
            .table_valued("owner_id", "name")
            .render_derived()
        )
        connection.execute(
            insert_or_skip(documents)
            .from_select(
                ["owner_id", "name"],
                select(names.c.owner_id, names.c.name).order_by(names.c.owner_id, names.c.name),
            )
            .on_conflict_do_nothing(
                index_elements=["owner_id", "name"], index_where=documents.c.status != inline(DocumentStatus.DELETED)
            )
        )
        rows = connection.execute(
            select(documents)
            .join(names, (names.c.owner_id == documents.c.owner_id) & (names.c.name == documents.c.name))
            .where(documents.c.status != inline(DocumentStatus.DELETED))
            .order_by(documents.c.owner_id, documents.c.name)
            .with_for_update(key_share=True, of=documents)
        )
        locked |= {(row.owner_id, row.name): row for row in rows}
        missing -= locked.keys()
        if not missing:
            return locked
    owner, name = next(iter(missing))
    raise DocumentBusy(f"{name!r} of {owner!r}")


def earlier_requests(connection: Connection, uploads: Sequence[Upload]) -> dict[tuple[str, str | None], Row[Any]]:
    """The versions that these request ids made before, with their first job."""
    keys = [(upload.owner_id, upload.request_id) for upload in uploads if upload.request_id is not None]
    if not keys:
        return {}
    first_job = select(func.min(jobs.c.id)).where(jobs.c.version_id == versions.c.id).scalar_subquery()
    rows = connection.execute(
        select(versions, documents.c.name, first_job.label("job_id"))
        .join(documents, documents.c.id == versions.c.document_id)
        .where(tuple_(versions.c.owner_id, versions.c.request_id).in_(keys))
    )
    return {(row.owner_id, row.request_id): row for row in rows}


def searched_in_the_end(connection: Connection, document_ids: Sequence[int]) -> dict[int, Row[Any]]:
    """For each document the highest-numbered of its current version and those being built."""
    rows = connection.execute(
        select(versions)
        .join(documents, documents.c.id == versions.c.document_id)
        .where(
            versions.c.document_id.in_(document_ids),
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
    columns = {
        "document_id": ([document_id for _, _, document_id in new], BigInteger),
        "owner_id": ([u.owner_id for u in uploads], Text),
        "storage_uri": ([u.storage_uri for u in uploads], Text),
        "content_sha256": ([u.content_sha256 for u in uploads], Text),
        "media_type": ([u.media_type for u in uploads], Text),
        "size_bytes": ([u.size_bytes for u in uploads], BigInteger),
        "request_id": ([u.request_id for u in uploads], Text),
        "max_retry_count": ([u.max_retry_count for u in uploads], Integer),
    }
    rows = (
        func.unnest(*(cast(literal(values), ARRAY(kind)) for values, kind in columns.values()))
        .table_valued(*columns)
        .render_derived()
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
                select(*(rows.c[name] for name in copied), next_no, literal(model_id, BigInteger)),
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
                .where(versions.c.id.in_([row.id for row in made.values()]))
                .order_by(versions.c.id),
            )
            .returning(jobs.c.id, jobs.c.document_id)
        )
    }
    connection.execute(
        update(documents)
        .where(
            documents.c.id.in_(list(made)),
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
