"""The claims of the stages that run in this worker: renewed, and stopped when they cannot be."""

import logging
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from time import monotonic

from celery.worker import state
from sqlalchemy import Connection

from domain.lease import extend_leases
from tasks.database import short_transaction
from tasks.requests import StageRequest

log = logging.getLogger(__name__)

OVERDUE = 15.0  # s past the hard limit after which the event loop is taken not to enforce it


def running_stages() -> list[StageRequest]:
    """The stage requests that a child of this worker runs now."""
    while True:
        try:
            active = list(state.active_requests)
        except RuntimeError:  # the event loop changed the set under our iteration
            continue
        return [r for r in active if isinstance(r, StageRequest) and r.claim is not None and r.pid]


class Leases:
    """Renews the leases of running stages, and kills the children whose claim is gone.

    Time here is this machine's monotonic clock. A lease counts from just before its renewal was sent, so it
    ends here before it ends in the database: a cut-off worker stops before another one may start.
    """

    def __init__(self, lease: timedelta, running: Callable[[], list[StageRequest]] = running_stages) -> None:
        self.lease = lease
        self._running = running
        self._renewed_at: dict[str, float] = {}
        self._lost_once: set[str] = set()
        self._killed: set[str] = set()

    @property
    def period(self) -> float:
        """Seconds between renewals: five may be missed."""
        return self.lease.total_seconds() / 6

    def renew(self, connection: Connection) -> None:
        """Extend the lease of every stage that runs here, in one transaction of its own.

        A stage whose claim is lost, because its document was cancelled or another worker took over, is
        stopped. Only at the second renewal that finds it lost: at the first it may just have ended, its
        result not yet read by the event loop.
        """
        stages = {request.id: request for request in self._running()}
        if not stages:
            return
        now = monotonic()
        claims = [request.claim for request in stages.values() if request.claim is not None]
        with short_transaction(connection):
            lost = set(extend_leases(connection, claims, self.lease))
        lost_ids = {key for key, request in stages.items() if request.claim in lost}
        self._renewed_at = {key: self._renewed_at.get(key, now) if key in lost_ids else now for key in stages}
        still_running = {request.id for request in self._running()}
        for key in lost_ids & self._lost_once & still_running:
            self._kill(stages[key], "its claim is lost")
        self._lost_once = lost_ids
        self._killed &= still_running

    def stop_unrenewed(self) -> None:
        """Kill the stages whose lease ran out unrenewed, or that outlived their hard limit. Needs no database."""
        now = monotonic()
        # A second early: the kill must come before another worker may claim the job.
        allowed = self.lease.total_seconds() - 1
        for request in self._running():
            accepted_at = request.accepted_at or now
            if now - max(accepted_at, self._renewed_at.get(request.id, 0.0)) > allowed:
                self._kill(request, "its lease could not be renewed")
            elif now - accepted_at > (request.task.time_limit or float("inf")) + OVERDUE:
                self._kill(request, "it outlived its hard time limit")  # the event loop hangs, perhaps on the broker

    def _kill(self, request: StageRequest, why: str) -> None:
        """End the child that runs ``request``, once; the event loop reports the death and starts another."""
        if request.id in self._killed or request.pid is None:
            return
        self._killed.add(request.id)
        claim = request.claim
        log.error("job_id=%s pid=%s stopped: %s", claim and claim.job_id, request.pid, why)
        with suppress(ProcessLookupError):
            os.kill(request.pid, signal.SIGKILL)
