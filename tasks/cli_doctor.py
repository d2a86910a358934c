"""``documents doctor``: what is wrong around the rows, and the command that repairs it."""

from collections.abc import Iterator
from dataclasses import dataclass

import click
from sqlalchemy.exc import SQLAlchemyError

from domain.failures import StageFailed
from domain.schema import SCHEMA_REVISION, schema_revision
from domain.statuses import Task
from domain.vitals import Vitals, read_vitals
from settings import settings
from stages.store import open_store
from tasks.app import app
from tasks.cli_errors import COULD_NOT_TELL, FAILED, explained
from tasks.cli_output import print_json
from tasks.database import transaction
from tasks.messages import waiting_messages

WAITS_LONG_SECONDS = 60.0  # a due job starts within about a second where a worker has a free place
BROKER_SECONDS = 3


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at. ``remedy`` is the command to type where it is not ``ok``."""

    what: str
    ok: bool
    said: str
    remedy: str | None = None


def examine(as_json: bool) -> int:
    """Look at everything; 1 when something needs repair, 2 when the database could not be asked."""
    findings = [*of_database(), of_broker(), of_store()]
    asked = findings[0].ok
    if as_json:
        print_json({"healthy": all(one.ok for one in findings), "findings": findings})
    for one in findings if not as_json else ():
        click.echo(f"{'ok  ' if one.ok else 'BAD '} {one.what}: {one.said}")
        if one.remedy and not one.ok:
            click.echo(f"     → {one.remedy}")
    if not asked:
        return COULD_NOT_TELL
    return 0 if all(one.ok for one in findings) else FAILED


def of_database() -> Iterator[Finding]:
    """The database first, then what it says; that only where it can be asked."""
    try:
        with transaction() as connection:
            revision = schema_revision(connection)
            vitals = read_vitals(connection) if revision == SCHEMA_REVISION else None
    except SQLAlchemyError as error:
        yield Finding("database", False, explained(error)[0], "start PostgreSQL, and see that DATABASE_URL names it")
        return
    yield Finding("database", True, "answers")
    right = revision == SCHEMA_REVISION
    said = f"at {revision}" if right else f"at {revision or 'nothing'}, this program needs {SCHEMA_REVISION}"
    yield Finding("migrations", right, said, "alembic upgrade head")
    if vitals is not None:
        yield from of_queues(vitals)
        yield from of_work(vitals)


def of_queues(vitals: Vitals) -> Iterator[Finding]:
    for queue, places in vitals.places.items():
        said = f"workers run {places} stages at once" if places else "no worker serves it"
        yield Finding(f"queue {queue}", places > 0, said, f"celery -A tasks worker --queues={queue}")


def of_work(vitals: Vitals) -> Iterator[Finding]:
    for task in Task:
        waited = vitals.longest_due_seconds[task]
        said = "nothing is due" if waited is None else f"the oldest due job waits for {waited:.0f} s"
        busy = waited is not None and waited > WAITS_LONG_SECONDS
        yield Finding(f"work of {task}", not busy, said, f"celery -A tasks worker --queues={task},claim  (one more)")
    expired, waiting = vitals.expired_leases, vitals.claims_not_begun
    yield Finding(
        "leases",
        expired == 0,
        f"{expired} ended more than a minute ago and nobody recovered them" if expired else "none is left behind",
        "celery -A tasks worker --queues=claim  (each claim recovers them)",
    )
    yield Finding(
        "claims",
        waiting == 0,
        f"{waiting} wait more than 5 minutes for their stage to begin" if waiting else "each begins soon",
        "restart the workers: claims whose messages were lost are given back and claimed again",
    )


def of_broker() -> Finding:
    remedy = "start Valkey or Redis, and see that REDIS_URL names it; no document is lost meanwhile"
    try:
        with app.connection_for_write(connect_timeout=BROKER_SECONDS) as broker:
            broker.ensure_connection(max_retries=1, interval_start=0, timeout=BROKER_SECONDS)
            waiting = {queue: waiting_messages(broker, queue) for queue in ("claim", "parse", "embed")}
    except Exception as error:  # noqa: BLE001 - whatever it is, the broker cannot be used
        return Finding("broker", False, f"does not answer: {type(error).__name__}", remedy)
    told = ", ".join(f"{queue} {count}" for queue, count in waiting.items())
    return Finding("broker", True, f"answers; messages waiting: {told}")


def of_store() -> Finding:
    url = settings().storage_url
    try:
        open_store(url).put_bytes([b"doctor"], 6)  # content-addressed: always the same few bytes
    except (StageFailed, ValueError, OSError) as error:
        return Finding("store", False, f"cannot be written: {error}", f"see that STORAGE_URL ({url}) may be written")
    return Finding("store", True, "can be written")
