"""What the broker lost, and a worker that no longer hears it."""

import logging
from collections.abc import Callable, Collection
from datetime import timedelta
from time import monotonic

from celery.worker import state
from kombu import Connection as Broker
from sqlalchemy import Connection

from domain.release import release_unbegun
from domain.statuses import Task
from tasks.database import short_transaction
from tasks.messages import waiting_messages
from tasks.requests import this_worker

log = logging.getLogger(__name__)

UNBEGUN = timedelta(seconds=5)  # how long a claim may wait for its stage to begin while the queue is empty
DEAF_AFTER = 60.0  # s


def release_lost(connection: Connection, empty: Collection[Task]) -> list[int]:
    """Release the claims whose message is gone; return their jobs.

    A stage's message is gone when its queue is empty and the claim has waited unbegun for 5 s. Nothing is
    prefetched, so the count is exact; should it be wrong once, the claim token makes that harmless.

    Args:
        empty: the tasks whose queue is empty.
    """
    released: list[int] = []
    for task in empty:
        with short_transaction(connection):
            released += release_unbegun(connection, task, UNBEGUN)
    if released:
        log.warning("released %d jobs whose messages are gone: %s", len(released), released[:20])
    return released


def count_waiting(broker: Broker, queues: Collection[str]) -> dict[str, int]:
    """How many messages wait in each queue, at the broker."""
    return {queue: waiting_messages(broker, queue) for queue in queues}


class Hearing:
    """Notices that messages wait for this worker while it runs nothing: after a minute it is deaf.

    A broken link that nobody closed leaves a worker that looks connected and hears nothing; so does a pool
    that cannot start children. Neither mends itself.
    """

    def __init__(
        self,
        busy: Callable[[], bool] = lambda: bool(state.active_requests),
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._busy = busy
        self._clock = clock
        self._silent_since: float | None = None

    def is_deaf(self, waiting: dict[str, int], consumed: Collection[str]) -> bool:
        """Tell, from one more look at the queues this worker consumes, whether it has been deaf for a minute."""
        unheard = any(waiting.get(queue) for queue in consumed)
        if self._busy() or not unheard:
            self._silent_since = None
            return False
        now = self._clock()
        if self._silent_since is None:
            self._silent_since = now
        return now - max(self._silent_since, this_worker.accepted_at) > DEAF_AFTER
