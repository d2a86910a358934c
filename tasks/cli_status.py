"""``documents status``, ``history``, ``failures`` and ``check``: what became of documents."""

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from domain.history import Event, FinalFailure, attempts_of, failures, history
from domain.processing import documents_by_ids
from domain.progress import JobState, VersionProgress
from domain.statuses import VersionStatus
from domain.views import DocumentView, document_view, list_documents
from tasks.cli_errors import FAILED
from tasks.cli_output import clock, duration, kind, print_json, print_table, table
from tasks.database import transaction

HEADINGS = ("ID", "NAME", "STATUS", "VERSION", "STATE", "CHUNKS", "LAST ERROR")


def show_documents(owner: str | None, limit: int, after: int | None, watch: bool, as_json: bool) -> None:
    """The newest documents, once or until nothing of them is being built."""

    def ask() -> list[tuple[DocumentView, int]]:
        with transaction() as connection:
            views = list_documents(connection, owner, limit, after)
            looks = documents_by_ids(connection, [view.document_id for view in views])
        retries = {look.document_id: look.retry_count for look in looks}
        return [(view, retries.get(view.document_id, 0)) for view in views]

    if watch and not as_json:
        watched(ask, lambda found: table(HEADINGS, [line(view) for view, _ in found]), all_finished)
        return
    found = ask()
    if as_json:
        print_json({"documents": [as_object(view, retries) for view, retries in found]})
    else:
        print_table(HEADINGS, [line(view) for view, _ in found], empty="no documents")


def show_document(document_id: int, owner: str | None, watch: bool, as_json: bool) -> int:
    """One document; the exit code is 1 when its newest version failed."""

    def ask() -> list[tuple[DocumentView, int]]:
        with transaction() as connection:
            view = document_view(connection, document_id, owner)
            looks = documents_by_ids(connection, [document_id])
        return [(view, looks[0].retry_count if looks else 0)]

    def shown(found: Sequence[tuple[DocumentView, int]]) -> RenderableType:
        return Group(*(Text(text) for text in lines(found[0][0])))

    if watch and not as_json:
        watched(ask, shown, all_finished)
    (view, retries), *_ = ask()
    if as_json:
        print_json(as_object(view, retries))
    elif not watch:
        for text in lines(view):
            click.echo(text)
    failed = view.stopped is not None and view.stopped.status == VersionStatus.FAILED and view.being_built is None
    return FAILED if failed else 0


def watched(
    ask: Callable[[], list[tuple[DocumentView, int]]],
    shown: Callable[[Sequence[tuple[DocumentView, int]]], RenderableType],
    finished: Callable[[Sequence[tuple[DocumentView, int]]], bool],
) -> None:
    """Show it anew each second until it is finished."""
    with Live(console=Console(), auto_refresh=False) as live:
        while True:
            found = ask()
            live.update(shown(found), refresh=True)
            if finished(found):
                return
            time.sleep(1)


def all_finished(found: Sequence[tuple[DocumentView, int]]) -> bool:
    return all(view.being_built is None for view, _ in found)


def as_object(view: DocumentView, retry_count: int) -> dict[str, Any]:
    """A document as programs read it: the view, and how often its newest version's last job was retried."""
    names = ("owner_id", "name", "status", "searchable", "being_built", "stopped", "stage_times")
    rest = {name: getattr(view, name) for name in (*names, "created_at", "updated_at")}
    return {"id": view.document_id, "retry_count": retry_count, **rest}


def line(view: DocumentView) -> tuple[str, ...]:
    """A document in a list."""
    going = view.being_built or view.stopped
    version = going.version_no if going else view.searchable.version_no if view.searchable else None
    chunks = chunk_count(going) if going else str(view.searchable.chunk_count) if view.searchable else ""
    error = going.last_error if going else None
    return (
        str(view.document_id),
        view.name,
        view.status,
        str(version or ""),
        state(going) if going else "",
        chunks,
        kind(error.failure_type, error.failure_reason) if error else "",
    )


def lines(view: DocumentView) -> list[str]:
    """A document by itself."""
    told = [f"{view.document_id}  {view.name}  {view.status}  (owner {view.owner_id})"]
    if view.searchable:
        found = view.searchable
        told.append(
            f"searchable: version {found.version_no}, {found.chunk_count} chunks, since {clock(found.indexed_at)}"
        )
    else:
        told.append("searchable: no version yet")
    for title, going in (("being built", view.being_built), ("stopped", view.stopped)):
        if going is None or (title == "stopped" and view.being_built is not None):
            continue
        chunks = f", {chunk_count(going)} chunks embedded" if going.chunks_total else ""
        told.append(f"{title}: version {going.version_no}, {state(going)}{chunks}")
        if going.last_error:
            error = going.last_error
            told.append(f"last error: {kind(error.failure_type, error.failure_reason)} at {clock(error.failed_at)}")
            told.append(f"  {error.explanation.english}")
            told.append(f"  {error.explanation.korean}")
            told.append(f"  {error.error_message}")
    if view.stage_times:
        told.append("stages: " + ", ".join(f"{one.stage} {duration(one.elapsed)}" for one in view.stage_times))
    return told


def state(going: VersionProgress) -> str:
    """``EMBEDDING, attempt 2 of 4, running on parse@host``."""
    words = [str(going.stage), f"attempt {going.attempt} of {going.max_attempts}"]
    if going.state is None:
        words[0] = f"{going.status} in {going.stage}"
    elif going.state is JobState.RUNNING:
        words.append(f"running on {going.worker_name} since {clock(going.stage_started_at)}")
    elif going.state is JobState.RETRY_LATER:
        words.append(f"next try at {clock(going.next_retry_at)}")
    else:
        words.append(f"waiting for a worker of queue {going.task} since {clock(going.queued_since)}")
    return ", ".join(words)


def chunk_count(going: VersionProgress) -> str:
    return f"{going.chunks_embedded}/{going.chunks_total}" if going.chunks_total else ""


def show_history(document_id: int, as_json: bool) -> None:
    """Every event of the document, page by page."""
    with transaction() as connection:
        events: list[Event] = []
        while page := history(connection, document_id, after=events[-1].id if events else 0):
            events += page
        attempts = attempts_of(connection, document_id)
    if as_json:
        print_json({"documentId": document_id, "events": events, "attempts": attempts})
        return
    by_id = {attempt.id: attempt for attempt in attempts}
    numbers = {one.version_id: one.version_no for one in events}
    print_table(
        ("TIME", "VERSION", "ATTEMPT", "EVENT", "DETAIL", "RUN BY"),
        [
            (
                stamp(one.created_at),
                one.version_no,
                attempt and attempt.attempt_no,
                one.type,
                told(one, numbers),
                attempt and attempt.run_by,
            )
            for one in events
            for attempt in [by_id.get(one.attempt_id or 0)]
        ],
        empty="no events",
    )


def stamp(time: datetime) -> str:
    return time.astimezone().strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def told(event: Event, version_numbers: Mapping[int | None, int | None]) -> str:
    """What the event says beyond its own columns, in words."""
    detail = {name: value for name, value in event.detail.items() if value is not None}
    if event.type == "CURRENT_CHANGED":
        old, new = (version_numbers.get(detail.get(which)) for which in ("old", "new"))
        return f"from version {old or 'none'} to {new or 'none'}"
    if event.type == "RETRY":
        at = clock(datetime.fromisoformat(detail["next_retry_at"]))
        retries = f"retry {detail['retry_count']} of {detail['max_retry_count']}"
        return f"{retries} after {detail['delay_seconds']:g} s, at {at}, from {detail['re_entry']} on"
    shown = {name: value for name, value in detail.items() if name not in ("attempt_no", "worker_id", "version_no")}
    return ", ".join(f"{name}={value}" for name, value in shown.items())


def show_failures(owner: str | None, limit: int, after: int | None, as_json: bool) -> None:
    with transaction() as connection:
        found = failures(connection, owner, limit, after)
    if as_json:
        print_json({"failures": found})
        return
    if not found:
        click.echo("no document failed for good")
    for one in found:
        show_failure(one)


def show_failure(one: FinalFailure) -> None:
    click.echo(
        f"document {one.document_id} {one.name} (version {one.version_no}, now {one.document_status}): "
        f"{one.failure_type} in {one.stage} at {clock(one.final_failed_at)}, retried {one.retry_count} times"
    )
    for error in one.errors:
        click.echo(
            f"  attempt {error.attempt}, {clock(error.timestamp)}, {error.stage}: "
            f"{kind(error.failure_type, error.failure_reason)}: {error.error_message}"
        )


def show_violations(as_json: bool) -> int:
    """Check every rule of the state machine; 1 when one is broken."""
    from domain.invariants import check_invariants

    with transaction() as connection:
        violations = check_invariants(connection)
    if as_json:
        print_json({"violations": violations})
    elif not violations:
        click.echo("every rule holds")
    for one in violations if not as_json else ():
        click.echo(f"{one.rule}: {one.table} {one.row_id}: {one.what}; {one.remedy}")
    return FAILED if violations else 0
