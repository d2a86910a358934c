"""The thread of a worker's main process that wakes, heartbeats, and reports what children cannot report.

A thread, not a timer of the event loop: that loop stands still while the broker is away, and leases would
run out. It has a connection of its own, not one that stages compete for.
"""

import logging
import os
import queue
import random
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from time import monotonic
from typing import Any, TypeVar

from celery import bootsteps, signals
from celery.exceptions import ImproperlyConfigured
from celery.platforms import EX_FAILURE
from celery.worker import state
from kombu import Connection as Broker
from sqlalchemy import Connection

from domain.errors import DomainError
from domain.fail import fail_attempt
from domain.failures import FailureType, StageFailed, clean_error_message
from domain.release import release_attempt
from domain.statuses import Task
from domain.wake import claim_hint_due
from domain.workers import note_worker_seen, note_worker_stopped, register_worker
from settings import settings
from tasks.database import short_transaction, single_connection_engine
from tasks.hardened import TaskPool
from tasks.leases import Leases, running_stages
from tasks.lost_messages import Hearing, count_waiting, release_lost
from tasks.messages import CLAIM_QUEUE, hint_unless_waiting
from tasks.models import configured_embedder
from tasks.recording import classify
from tasks.requests import this_worker

T = TypeVar("T")

log = logging.getLogger(__name__)

TICK = 1.0  # s between questions whether anything is due
SIGN_OF_LIFE = 10.0  # s; claims count the workers seen in the last 30
LOOK = 5.0  # s between looks at the queues, while there is work
IDLE_LOOK = 30.0  # s between them otherwise
LATELY = 60.0  # s since the last stage or hint, after which there is no work
LONGEST_PAUSE = 30.0  # s between tries while the database is away and nothing runs here
DATABASE_PATIENCE = 4  # s until a silent database is taken to be away
BROKER_PAUSE = 4.0  # s between tries while the broker is away
HANG_PATIENCE = 30.0  # s a deaf worker gets to end tidily


class Supervisor(bootsteps.StartStopStep):
    """Starts the thread with the worker, and stops it after the pool has drained."""

    requires = ("celery.worker.components:Pool",)

    def __init__(self, worker: Any, **_options: Any) -> None:
        if not issubclass(worker.pool_cls, TaskPool):
            raise ImproperlyConfigured(
                "Holdfast needs the prefork pool, the default: only its children can be stopped at a time limit"
            )
        if Task.EMBED in worker.app.amqp.queues.consume_from:
            warm_up()  # before the fork: children share the model's memory, and a new child starts with it
        # At level DEBUG it shows each request whole, and with it the claim token.
        logging.getLogger("celery.pool").setLevel(logging.INFO)
        self.watch: Watch | None = None

    def start(self, worker: Any) -> None:
        self.watch = Watch(worker)
        # After a warm shutdown has drained the pool; a cold one sends no such signal and calls terminate.
        signals.worker_shutdown.connect(self._finish, weak=False)
        self.watch.start()

    def stop(self, worker: Any) -> None:
        """Before the pool drains: wake nobody any more, but go on renewing what still runs."""
        if self.watch is not None:
            self.watch.draining = True

    def terminate(self, worker: Any) -> None:
        """Cold shutdown: whatever still runs is about to be killed, and is given back."""
        if self.watch is not None:
            for request in running_stages():
                if request.claim is not None:
                    this_worker.interrupted.put(request.claim)
            self._finish()

    def _finish(self, **_signal: object) -> None:
        watch, self.watch = self.watch, None
        if watch is not None:
            watch.finish()


class Watch:
    """What the thread does. Losing the database or the broker makes it back off and go on."""

    def __init__(self, worker: Any) -> None:
        self.app = worker.app
        self.name: str = worker.hostname
        self.concurrency: int = worker.max_concurrency or worker.concurrency
        self.draining = False
        self.leases = Leases(timedelta(seconds=settings().lease_seconds))
        self.hearing = Hearing()
        self._engine = single_connection_engine(DATABASE_PATIENCE)
        self._connection: Connection | None = None
        self._broker: Broker | None = None
        self._broker_again_at = 0.0
        self._failures = 0
        self._next_renewal = self._next_sign = 0.0
        self._looked_at = self._hinted_at = monotonic()
        self._waiting: dict[str, int] = {}
        self._ended = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, name="supervisor", daemon=True),
            threading.Thread(target=self._fence, name="fence", daemon=True),
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def finish(self) -> None:
        """End the thread; then give back what the shutdown interrupted, and say that this worker stopped."""
        self._ended.set()
        self._threads[0].join(2 * DATABASE_PATIENCE)
        if self._threads[0].is_alive() or this_worker.id is None:
            return
        try:
            connection = self._connect()
            self._report(connection)
            with short_transaction(connection):
                note_worker_stopped(connection, this_worker.id)
        except Exception as error:  # noqa: BLE001 - leases end what could not be said
            log.warning("the database could not be told that this worker stops: %s", self._cleaned(error))
        self._drop_connection()

    def _run(self) -> None:
        pause = 0.0
        while not self._ended.wait(pause):
            try:
                self._tick(self._connect())
                self._failures = 0
                pause = TICK * random.uniform(0.8, 1.2)  # noqa: S311 - spreads the fleet, guards nothing
            except Exception as error:  # noqa: BLE001 - without this thread the worker does nothing
                self._failures += 1
                self._drop_connection()
                longest = self.leases.period if running_stages() else LONGEST_PAUSE
                pause = min(longest, 2.0 ** min(self._failures - 1, 5))
                log.warning("the database cannot be used, next try in %.0f s: %s", pause, self._cleaned(error))

    def _fence(self) -> None:
        """Its own thread: it must not wait for the database whose absence it is about."""
        while not self._ended.wait(0.5):
            try:
                self.leases.stop_unrenewed()
            except Exception:
                log.exception("the fence failed")

    def _tick(self, connection: Connection) -> None:
        if this_worker.id is None:
            with short_transaction(connection):
                queues = self.app.amqp.queues.consume_from
                this_worker.id = register_worker(connection, self.name, sorted(queues), self.concurrency)
            log.info("worker %s registered as %d", self.name, this_worker.id)
        self._report(connection)
        if monotonic() >= self._next_renewal:
            self._next_renewal = monotonic() + self.leases.period
            self.leases.renew(connection)
        if monotonic() >= self._next_sign:
            self._next_sign = monotonic() + SIGN_OF_LIFE
            with short_transaction(connection):
                note_worker_seen(connection, this_worker.id)
        if self.draining:
            return
        with short_transaction(connection):
            due = claim_hint_due(connection, self._tasks())
        if due:
            self._hinted_at = monotonic()
            self._tell_broker(hint_unless_waiting)
        busy = monotonic() - max(self._hinted_at, this_worker.accepted_at) < LATELY
        if monotonic() - self._looked_at >= (LOOK if busy else IDLE_LOOK):
            self._looked_at = monotonic()
            self._look(connection)

    def _tasks(self) -> list[Task]:
        """What is worth waking for: the tasks this worker runs, or all where it only claims."""
        consumed = self.app.amqp.queues.consume_from
        return [task for task in Task if task in consumed] or list(Task)

    def _report(self, connection: Connection) -> None:
        """Record children that died, and give back what the shutdown interrupted."""
        secrets = settings().secrets
        for claim, failure in drain(this_worker.lost):
            with keeping(this_worker.lost, (claim, failure)):
                with short_transaction(connection):
                    result = fail_attempt(connection, claim, failure, secrets)
                log.warning(
                    "job_id=%d attempt_id=%d from=%s to=%s failure_type=%s reason=%s retry_count=%d",
                    claim.job_id,
                    claim.attempt_id,
                    result.failed_stage,
                    result.outcome,
                    result.failure_type,
                    result.failure_reason,
                    result.retry_count,
                )
        for claim in drain(this_worker.interrupted):
            with keeping(this_worker.interrupted, claim):
                with short_transaction(connection):
                    release_attempt(connection, claim)
                log.info("job_id=%d attempt_id=%d to=RELEASED", claim.job_id, claim.attempt_id)

    def _look(self, connection: Connection) -> None:
        """Release what the broker lost, and notice that this worker no longer hears it."""
        before = self._waiting
        found = self._tell_broker(lambda broker: count_waiting(broker, (CLAIM_QUEUE, *Task)))
        self._waiting = found or {}
        if found is None:
            return
        # Empty at two looks: what was on its way at the first one is with a worker by now.
        release_lost(connection, [task for task in Task if before.get(task) == found[task] == 0])
        if self.hearing.is_deaf(found, self.app.amqp.queues.consume_from):
            log.critical("messages wait, but this worker hears none: it ends, to be started again")
            # Not a signal: its handler would make the exit code 0, and a clean exit is not restarted.
            state.should_stop = EX_FAILURE  # type: ignore[assignment]  # the stub knows only None
            killer = threading.Timer(HANG_PATIENCE, os.kill, (os.getpid(), signal.SIGKILL))
            killer.daemon = True
            killer.start()

    def _tell_broker(self, act: Callable[[Broker], T]) -> T | None:
        """Do ``act`` on the thread's own link to the broker; None when the broker is away, or was a moment ago.

        Leases are renewed by this thread: it waits for the broker once, 2 s, and then leaves it alone for a while.
        """
        if monotonic() < self._broker_again_at:
            return None
        try:
            if self._broker is None:
                # Without max_retries kombu would try again by itself, each time for seconds.
                patience = {"socket_timeout": 2, "socket_connect_timeout": 2, "max_retries": 0}
                self._broker = self.app.connection_for_write(transport_options=patience)
            return act(self._broker)
        except Exception as error:  # noqa: BLE001 - the rows are safe, and leases must go on
            log.warning("the broker cannot be used: %s", self._cleaned(error))
            self._broker_again_at = monotonic() + BROKER_PAUSE
            broker, self._broker = self._broker, None
            if broker is not None:
                with suppress(Exception):
                    broker.release()
            return None

    def _connect(self) -> Connection:
        if self._connection is None:
            self._connection = self._engine.connect()
        return self._connection

    def _drop_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):
                connection.invalidate()
                connection.close()

    def _cleaned(self, error: Exception) -> str:
        lines = clean_error_message(str(error), type(error).__name__, settings().secrets).splitlines()
        return lines[0][:300]


def warm_up() -> None:
    """Load the embedding model; a worker without it still parses, and says why it cannot embed."""
    try:
        configured_embedder().warm()
    except StageFailed as failed:
        log.warning("the embedding model cannot be used: %s", failed.failure.message)
    except Exception:
        log.exception("the embedding model cannot be loaded")


def drain(items: "queue.SimpleQueue[T]") -> Iterator[T]:
    """What is in the queue now; what is put back meanwhile waits for the next time."""
    for _ in range(items.qsize()):
        with suppress(queue.Empty):
            yield items.get_nowait()


@contextmanager
def keeping(items: "queue.SimpleQueue[T]", item: T) -> Iterator[None]:
    """Put ``item`` back when the database is away; one that it refuses is dropped and keeps no other waiting."""
    try:
        yield
    except DomainError as error:
        log.info("not recorded: %s", error)  # the attempt ended another way meanwhile
    except Exception as error:
        failure = classify(error)
        if failure is not None and failure.type == FailureType.STORAGE_UNAVAILABLE:
            items.put(item)
            raise
        log.error("not recorded, its lease will end it: %s", failure.message if failure else type(error).__name__)
