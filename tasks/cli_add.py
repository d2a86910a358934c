"""``documents add``: files into the store, their documents into the database, and the wait for their end."""

import glob
import os
import time
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from domain.enqueue import Enqueued, Upload, enqueue_documents
from domain.failures import clean_error_message
from domain.processing import DocumentProgress, documents_by_ids
from domain.statuses import VersionStatus
from domain.views import document_view
from settings import settings
from stages.store import Store, StoredFile, open_store
from tasks.cli_errors import FAILED
from tasks.cli_output import clock, kind, print_json
from tasks.database import run_transaction, transaction
from tasks.messages import send_claim_hint
from tasks.models import configured_model_id

BATCH = 500  # documents a transaction
LOOK = 0.5  # s between looks while waiting
SLOW_START = 15.0  # s after which a document that no worker began is worth a word

screen = Console(stderr=True, highlight=False, soft_wrap=True)  # progress; stdout is for results


@dataclass
class Added:
    """One file and what became of it. ``status`` is the version's, UNCHANGED, or NOT_READ."""

    name: str
    path: Path
    status: str = "NOT_READ"
    id: int | None = None
    version_id: int | None = None
    version_no: int | None = None
    job_id: int | None = None
    retry_count: int = 0
    failure_type: str | None = None
    failure_reason: str | None = None
    error: str | None = None

    @property
    def failed(self) -> bool:
        return self.status in ("NOT_READ", VersionStatus.FAILED, VersionStatus.CANCELLED)


def add_documents(paths: Sequence[str], owner: str, wait: bool, force: bool, as_json: bool) -> int:
    """Add the files; return the exit code.

    Accepted means committed: without a broker the documents are in the database all the same, and are begun
    once a worker hears of them or looks by itself.
    """
    values = settings()
    files = [Added(name, path) for name, path in files_of(paths).items()]
    if not files:
        raise click.UsageError("there is no file to add: the folders are empty, or hold hidden files only")
    with progress_bar("adding", len(files)) as bar:
        model_id = configured_model_id()
        store = open_store(values.storage_url)
        for batch in batches(files):
            enqueue(batch, owner, force, store, model_id)
            bar.advance(bar.task_ids[0], len(batch))
    if wait:
        wait_for(files)
    report(files, as_json)
    return FAILED if any(file.failed for file in files) else 0


def files_of(paths: Sequence[str]) -> dict[str, Path]:
    """The files that ``paths`` name, by document name: the path as typed, normalised, in Unicode's form C.

    A file system may spell 한글 in another form than the one typed (macOS does); the document is the same.

    Raises:
        click.UsageError: a path does not exist, or a pattern matches nothing.
    """
    found: dict[str, Path] = {}
    for typed in paths:
        matches = [typed] if os.path.lexists(typed) else sorted(glob.glob(typed, recursive=True))
        if not matches:
            raise click.UsageError(f"{typed}: no such file or folder")
        for match in matches:
            for path in walk(Path(match)):
                name = os.path.normpath(path).replace(os.sep, "/")
                readable = name.encode(errors="surrogateescape").decode(errors="replace")
                found.setdefault(unicodedata.normalize("NFC", readable), path)
    return found


def walk(path: Path) -> Iterator[Path]:
    """The file itself, or every file below the folder in order, without hidden ones."""
    if not path.is_dir():
        yield path
        return
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            below = Path(folder, name)
            if not name.startswith(".") and below.is_file():
                yield below


def batches(files: Sequence[Added]) -> Iterator[Sequence[Added]]:
    for start in range(0, len(files), BATCH):
        yield files[start : start + BATCH]


def enqueue(files: Sequence[Added], owner: str, force: bool, store: Store, model_id: int) -> None:
    """Store these files and accept their documents in one transaction; one hint for all."""
    stored: list[tuple[Added, StoredFile]] = []
    for file in files:
        try:
            stored.append((file, store.put_file(file.path)))
        except OSError as error:
            file.error = f"cannot be read: {error.strerror or type(error).__name__}"
    uploads = [
        Upload(
            owner_id=owner,
            name=file.name,
            storage_uri=kept.uri,
            content_sha256=kept.sha256,
            max_retry_count=settings().max_retry_count,
            force=force,
            size_bytes=kept.size_bytes,
        )
        for file, kept in stored
    ]
    if not uploads:
        return
    results = run_transaction(lambda connection: enqueue_documents(connection, uploads, model_id))
    for (file, _), result in zip(stored, results, strict=True):
        note(file, result)
    if any(not result.unchanged for result in results):
        send_claim_hint()


def note(file: Added, result: Enqueued) -> None:
    file.id, file.version_id, file.version_no = result.document_id, result.version_id, result.version_no
    file.job_id = result.job_id
    file.status = "UNCHANGED" if result.unchanged else VersionStatus.UPLOADED


def wait_for(files: Sequence[Added]) -> None:
    """Stay until no added version is being built any more; tell of each retry, failure and end."""
    by_id = {file.id: file for file in files if file.id is not None}
    waiting = {key for key, file in by_id.items() if key is not None}
    began = time.monotonic()
    told_slow = False
    try:
        with progress_bar("indexing", len(waiting)) as bar:
            while True:
                with transaction() as connection:
                    looks = documents_by_ids(connection, waiting)
                for look in looks:
                    tell(by_id[look.document_id], look)
                    if look.finished:
                        waiting.discard(look.document_id)
                bar.update(bar.task_ids[0], completed=len(by_id) - len(waiting))
                if not waiting:
                    break
                untouched = all(look.version_status == VersionStatus.UPLOADED for look in looks)
                if untouched and not told_slow and time.monotonic() - began > SLOW_START:
                    screen.print("no worker has begun: is one running? celery -A tasks worker", style="yellow")
                    told_slow = True
                time.sleep(LOOK)
    except KeyboardInterrupt:
        screen.print("No longer waiting; the documents go on being indexed: celery -A tasks documents status")
        raise
    explain_failures(files)


def tell(file: Added, look: DocumentProgress) -> None:
    """Take over what is new about a file, and say it where nobody watches a bar."""
    retried = look.retry_count > file.retry_count and look.version_id == file.version_id
    if look.version_id != file.version_id and not look.finished:
        return  # somebody else added a newer version meanwhile
    file.retry_count = look.retry_count
    file.failure_type, file.failure_reason = look.failure_type, look.failure_reason
    if retried and not look.finished:
        what = kind(look.failure_type, look.failure_reason)
        when = f", next try at {clock(look.next_retry_at)}" if look.next_retry_at else ""
        screen.print(f"retry    {file.name}: {what}{when}", markup=False)
    if look.finished and file.status != "UNCHANGED":
        file.status = look.version_status
        if file.status == VersionStatus.INDEXED:
            screen.print(f"indexed  {file.name}", markup=False)
            file.failure_type = file.failure_reason = None
        else:
            what = kind(look.failure_type, look.failure_reason)
            screen.print(f"{file.status.lower():8} {file.name}: {what}", markup=False)


def explain_failures(files: Sequence[Added]) -> None:
    """Fetch the words of the last error for the few that failed."""
    secrets = settings().secrets
    with transaction() as connection:
        for file in files:
            if file.status == VersionStatus.FAILED and file.id is not None:
                stopped = document_view(connection, file.id).stopped
                if stopped is not None and stopped.last_error is not None:
                    file.error = clean_error_message(stopped.last_error.error_message, secrets=secrets)


def report(files: Sequence[Added], as_json: bool) -> None:
    """The result on stdout: JSON, or one line for each failure and one for all."""
    counts = {
        "indexed": sum(file.status == VersionStatus.INDEXED for file in files),
        "accepted": sum(file.job_id is not None for file in files),
        "unchanged": sum(file.status == "UNCHANGED" for file in files),
        "failed": sum(file.failed for file in files),
    }
    if as_json:
        print_json({"documents": [as_object(file) for file in files], **counts})
        return
    for file in files:
        if file.failed:
            what = ": ".join(part for part in (kind(file.failure_type, file.failure_reason), file.error) if part)
            number = f" (document {file.id})" if file.id is not None else ""
            click.echo(f"failed: {file.name}{number}: {what or file.status}")
    click.echo(", ".join(f"{count} {word}" for word, count in counts.items() if count) or "nothing to do")


def as_object(file: Added) -> dict[str, object]:
    """A file as programs read it."""
    return {field.name: getattr(file, field.name) for field in fields(file) if field.name != "path"}


def progress_bar(verb: str, total: int) -> Progress:
    """A bar on a terminal; silent elsewhere, where the lines must do."""
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=screen,
        transient=True,
        disable=not screen.is_terminal,
    )
    bar.add_task(verb, total=total)
    return bar
