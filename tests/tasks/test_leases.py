"""The main process renews the leases of running stages, and kills those it can no longer renew."""

import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from time import monotonic
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import text

from domain.held import Claim
from domain.release import release_attempt
from domain.statuses import VersionStatus
from settings import Settings
from tasks.database import single_connection_engine
from tasks.leases import OVERDUE, Leases
from tasks.lost_messages import DEAF_AFTER, Hearing
from tests.conftest import WaitUntil
from tests.domain.indexing import Indexing

LEASE = timedelta(seconds=60)


@dataclass
class Running:
    """A stage request as the event loop holds it, with a real child process."""

    claim: Claim
    child: subprocess.Popen[bytes]
    accepted_at: float = field(default_factory=monotonic)
    id: str = "request"
    task: Any = field(default_factory=lambda: SimpleNamespace(time_limit=300))

    @property
    def pid(self) -> int:
        return self.child.pid


@pytest.fixture
def running(connected: Settings, indexing: Indexing) -> Iterator[Running]:
    indexing.upload()
    claimed = indexing.bring_to(VersionStatus.PARSING)
    indexing.connection.commit()
    with subprocess.Popen(["sleep", "600"]) as child:
        yield Running(claimed.claim, child)
        child.kill()


def leases_of(running: Running, lease: timedelta = LEASE) -> Leases:
    return Leases(lease, lambda: [running])  # type: ignore[list-item]


def test_a_running_stage_is_renewed(running: Running, indexing: Indexing) -> None:
    leases = leases_of(running, timedelta(hours=1))
    engine = single_connection_engine(5)
    with engine.connect() as connection:
        leases.renew(connection)
    left = indexing.connection.execute(text("SELECT lease_expires_at - clock_timestamp() FROM embedding_jobs"))
    assert left.scalar_one() > timedelta(minutes=59)
    leases.stop_unrenewed()
    assert running.child.poll() is None


def test_a_stage_that_was_not_renewed_for_a_lease_is_killed(running: Running, wait_until: WaitUntil) -> None:
    running.accepted_at -= LEASE.total_seconds()
    leases_of(running).stop_unrenewed()
    assert wait_until(running.child.poll) == -signal.SIGKILL


def test_a_stage_of_this_very_moment_is_not_killed(running: Running) -> None:
    running.accepted_at -= LEASE.total_seconds() - 2
    leases_of(running).stop_unrenewed()
    assert running.child.poll() is None


def test_a_stage_that_outlived_its_hard_limit_is_killed_when_the_event_loop_does_not(
    running: Running, wait_until: WaitUntil
) -> None:
    leases = leases_of(running, timedelta(hours=2))
    running.accepted_at -= running.task.time_limit + OVERDUE + 1
    leases.stop_unrenewed()
    assert wait_until(running.child.poll) == -signal.SIGKILL


def test_a_lost_claim_stops_its_stage_at_the_second_look(
    running: Running, indexing: Indexing, wait_until: WaitUntil
) -> None:
    """At the first look the stage may just have ended, its result not yet read."""
    release_attempt(indexing.connection, running.claim)
    indexing.connection.commit()
    leases = leases_of(running)
    with single_connection_engine(5).connect() as connection:
        leases.renew(connection)
        assert running.child.poll() is None
        leases.renew(connection)
    assert wait_until(running.child.poll) == -signal.SIGKILL


class Clock:
    """The monotonic clock, some seconds on."""

    ahead = 0.0

    def __call__(self) -> float:
        return monotonic() + self.ahead


def test_a_worker_is_deaf_when_messages_wait_for_a_minute_while_it_runs_nothing() -> None:
    clock = Clock()
    hearing = Hearing(busy=lambda: False, clock=clock)
    assert not hearing.is_deaf({"parse": 1}, ["parse"])
    clock.ahead = DEAF_AFTER - 5
    assert not hearing.is_deaf({"parse": 1}, ["parse"])
    clock.ahead = DEAF_AFTER + 1
    assert hearing.is_deaf({"parse": 1}, ["parse"])


@pytest.mark.parametrize(
    ("busy", "waiting", "consumed"),
    [(True, {"parse": 1}, ["parse"]), (False, {"parse": 0}, ["parse"]), (False, {"embed": 5}, ["parse"])],
    ids=["it runs something", "nothing waits", "what waits is not for it"],
)
def test_a_worker_hears_well_when(busy: bool, waiting: dict[str, int], consumed: list[str]) -> None:
    clock = Clock()
    hearing = Hearing(busy=lambda: busy, clock=clock)
    for ahead in (0, DEAF_AFTER + 1):
        clock.ahead = ahead
        assert not hearing.is_deaf(waiting, consumed)


def test_a_worker_that_hears_one_message_in_a_minute_is_not_deaf() -> None:
    clock = Clock()
    hearing = Hearing(busy=lambda: False, clock=clock)
    assert not hearing.is_deaf({"parse": 1}, ["parse"])
    clock.ahead = 50
    assert not hearing.is_deaf({"parse": 0}, ["parse"])
    clock.ahead = DEAF_AFTER + 1
    assert not hearing.is_deaf({"parse": 1}, ["parse"])
