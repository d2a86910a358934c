"""What should happen to an upload and to a whole document: written from the specification, as in ``working``."""

from collections.abc import Sequence
from typing import Any

from domain.enqueue import Enqueued, Upload
from domain.errors import NotFound, NothingToCancel, NotRetryable, RequestConflict
from tests.model.working import make_stale
from tests.model.world import ENDED, Document, Job, Version, World


def enqueue(world: World, uploads: Sequence[Upload], model_id: int, got: Any) -> list[Enqueued]:
    """The rounds: of a name given twice, the second upload comes after the first of every name."""
    given = got if isinstance(got, list) else [None] * len(uploads)
    results: dict[int, Enqueued] = {}
    waiting = list(range(len(uploads)))
    while waiting:
        names: set[tuple[str, str]] = set()
        requests: set[tuple[str, str]] = set()
        later = []
        for place in waiting:
            upload = uploads[place]
            if (upload.owner_id, upload.name) in names:
                later.append(place)
                continue
            names.add((upload.owner_id, upload.name))
            if upload.request_id is not None and (request := (upload.owner_id, upload.request_id)):
                if request in requests:
                    raise RequestConflict(upload.request_id)
                requests.add(request)
            results[place] = enqueue_one(world, upload, model_id, given[place])
        waiting = later
    return [results[place] for place in range(len(uploads))]


def enqueue_one(world: World, upload: Upload, model_id: int, got: Enqueued | None) -> Enqueued:
    if upload.request_id is not None and (earlier := world.requests.get((upload.owner_id, upload.request_id))):
        same = (
            earlier.sha256 == upload.content_sha256
            if earlier.sha256 and upload.content_sha256
            else earlier.storage_uri == upload.storage_uri
        )
        if earlier.document.name != upload.name or not same:
            raise RequestConflict(upload.request_id)
        return Enqueued(earlier.document.id, earlier.id, earlier.no, earlier.jobs[0].id, unchanged=False)
    document = find_named(world, upload)
    searched = searched_in_the_end(document) if document else None
    if (
        searched is not None
        and not upload.force
        and upload.content_sha256 is not None
        and (searched.sha256, searched.model_id) == (upload.content_sha256, model_id)
    ):
        return Enqueued(searched.document.id, searched.id, searched.no, None, unchanged=True)

    # Rounds that end in a conflict are undone, whatever ids they were given here.
    ids = (got.document_id, got.version_id, got.job_id or 0) if got else (-1, -1 - len(world.versions), -1)
    if document is None:
        document = Document(ids[0], upload.owner_id, upload.name)
        world.documents[document.id] = document
        world.event(document, "DOCUMENT_PENDING")
    version = Version(ids[1], document, len(document.versions) + 1, upload.storage_uri, upload.content_sha256, model_id)
    document.versions.append(version)
    world.versions[version.id] = version
    if upload.request_id is not None:
        world.requests[upload.owner_id, upload.request_id] = version
    world.event(document, "FILE_UPLOADED", None, version)
    job = add_job(world, version, ids[2], upload.max_retry_count)
    wake(world, document)
    return Enqueued(document.id, version.id, version.no, job.id, unchanged=False)


def find_named(world: World, upload: Upload) -> Document | None:
    named = (
        document
        for document in world.documents.values()
        if (document.owner_id, document.name) == (upload.owner_id, upload.name) and document.status != "DELETED"
    )
    return next(named, None)


def searched_in_the_end(document: Document) -> Version | None:
    candidates = [v for v in document.versions if v is document.current or v.status not in ENDED]
    return max(candidates, key=lambda version: version.no, default=None)


def add_job(world: World, version: Version, job_id: int, max_retry_count: int) -> Job:
    now = world.now()
    stage = version.stopped_stage or version.status
    task = "embed" if stage in ("EMBEDDING", "STORING") else "parse"
    job = Job(job_id, version, max_retry_count, born=now, due=now, task=task)
    version.jobs.append(job)
    world.jobs[job.id] = job
    return job


def wake(world: World, document: Document) -> None:
    if document.status in ("FAILED", "CANCELLED"):
        document.status = "PENDING"
        world.event(document, "DOCUMENT_PENDING")


def retry(world: World, version_id: int, got: Any) -> int:
    version = world.versions.get(version_id)
    if version is None:
        raise NotFound("version", version_id)
    document = version.document
    if document.status == "DELETED" or version is not document.versions[-1] or not version.stopped_stage:
        raise NotRetryable(version_id, "")
    job = add_job(world, version, got if isinstance(got, int) else -1, version.jobs[-1].max_retry_count)
    version.status, version.stopped_stage = version.stopped_stage, None
    world.event(document, "MANUAL_RETRY", version.status, version, job)
    if not version.active and version.embedded:
        world.event(document, "EMBEDDINGS_ACTIVE", None, version)
    version.active = True
    wake(world, document)
    return job.id


def cancel(world: World, document_id: int, owner_id: str | None) -> list[int]:
    document = owned(world, document_id, owner_id)
    if document.status == "DELETED":
        raise NotFound("document", document_id)
    live = sorted(job.id for job in document.live_jobs)
    if not live:
        raise NothingToCancel(document_id)
    cancel_jobs(world, document)
    if document.status == "PENDING":
        document.status = "CANCELLED"
        world.event(document, "DOCUMENT_CANCELLED")
    return live


def owned(world: World, document_id: int, owner_id: str | None) -> Document:
    document = world.documents.get(document_id)
    if document is None or owner_id not in (None, document.owner_id):
        raise NotFound("document", document_id)
    return document


def cancel_jobs(world: World, document: Document) -> None:
    for job in document.live_jobs:
        version = job.version
        if job.status == "PROCESSING":
            job.attempts[-1].status = "CANCELLED"
        job.status, job.due, job.lease_over = "CANCELLED", None, None
        world.event(document, "CANCELLED", version.status, version, job)
        version.status, version.stopped_stage = "CANCELLED", version.status
        make_stale(world, version)


def delete(world: World, document_id: int, owner_id: str | None) -> None:
    document = owned(world, document_id, owner_id)
    if document.status == "DELETED":
        return
    cancel_jobs(world, document)
    if document.current is not None:
        world.event(document, "CURRENT_CHANGED")
    document.status, document.current = "DELETED", None
    world.event(document, "DOCUMENT_DELETED")
    for version in document.versions:
        version.has_text, version.chunks, version.active = False, 0, True
        version.embedded = set()
