"""What the director can do: each act does harm when it is entered and mends it when it is left."""

import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass

import psycopg

from embedded.postgres import APPLICATION
from tests.chaos.clock import Clock
from tests.chaos.fleet import Fleet, freeze, signal_all
from tests.chaos.provider import MoodyProvider
from tests.end_to_end.conftest import System

LEASE = 6.0  # s
TEN_MINUTES = 600


@dataclass
class Scene:
    """Everything that can be harmed."""

    system: System
    provider: MoodyProvider
    fleet: Fleet
    clock: Clock | None


# ``chance`` is the act's own: what it draws depends on the seed alone.
Play = Callable[[Scene, random.Random, float], AbstractContextManager[None]]


@dataclass(frozen=True)
class Act:
    """One kind of harm.

    ``touches``: two acts that touch the same part are not played at once. ``shortest``, ``longest``: how long
    the harm lasts, in seconds. ``explains``: the failures that may follow from it, by type or reason.
    """

    name: str
    touches: str
    shortest: float
    longest: float
    explains: frozenset[str]
    play: Play


ACTS: dict[str, Act] = {}

DIED = frozenset({"LEASE_EXPIRED", "WORKER_KILLED"})
NO_DATABASE = DIED | {"STORAGE_UNAVAILABLE"}
NO_PROVIDER = frozenset({"EMBEDDING_PROVIDER_UNAVAILABLE"})


def act(
    name: str, touches: str, shortest: float, longest: float, explains: frozenset[str]
) -> Callable[[Callable[[Scene, random.Random, float], Iterator[None]]], Play]:
    def register(play: Callable[[Scene, random.Random, float], Iterator[None]]) -> Play:
        made: Play = contextmanager(play)
        ACTS[name] = Act(name, touches, shortest, longest, explains, made)
        return made

    return register


# Workers


@act("kill a child", "workers", 0, 0, DIED)
def kill_child(scene: Scene, chance: random.Random, _: float) -> Iterator[None]:
    children = scene.fleet.children(chance.randrange(len(scene.fleet.members)))
    if children:
        signal_all([chance.choice(children)], signal.SIGKILL)
    yield


@act("kill every child", "workers", 0, 0, DIED)
def kill_children(scene: Scene, chance: random.Random, _: float) -> Iterator[None]:
    signal_all(scene.fleet.children(chance.randrange(len(scene.fleet.members))), signal.SIGKILL)
    yield


@act("kill a worker", "workers", 0, 0, DIED)
def kill_worker(scene: Scene, chance: random.Random, _: float) -> Iterator[None]:
    scene.fleet.end(chance.randrange(len(scene.fleet.members)), signal.SIGKILL)
    yield


@act("kill all workers", "workers", 0, 0, DIED)
def kill_workers(scene: Scene, _chance: random.Random, _: float) -> Iterator[None]:
    for place in range(len(scene.fleet.members)):
        scene.fleet.end(place, signal.SIGKILL)
    yield


@act("shut a worker down", "workers", 0, 0, frozenset())
def shut_down(scene: Scene, chance: random.Random, _: float) -> Iterator[None]:
    scene.fleet.end(chance.randrange(len(scene.fleet.members)), chance.choice((signal.SIGTERM, signal.SIGQUIT)))
    yield


@act("freeze a worker", "workers", LEASE + 2, LEASE + 6, DIED | {"TIME_LIMIT"})
def freeze_worker(scene: Scene, chance: random.Random, seconds: float) -> Iterator[None]:
    freeze(scene.fleet.tree(chance.randrange(len(scene.fleet.members))), seconds)
    yield


@act("freeze a child", "workers", LEASE + 2, LEASE + 6, DIED | {"TIME_LIMIT"})
def freeze_child(scene: Scene, chance: random.Random, seconds: float) -> Iterator[None]:
    freeze(scene.fleet.children(chance.randrange(len(scene.fleet.members)))[:1], seconds)
    yield


# Broker


@act("flush the broker", "broker", 0, 0, frozenset())
def flush_broker(scene: Scene, _chance: random.Random, _: float) -> Iterator[None]:
    scene.system.servers.valkey.flush()
    yield


@act("restart the broker", "broker", 1, 10, frozenset())
def restart_broker(scene: Scene, _chance: random.Random, seconds: float) -> Iterator[None]:
    valkey = scene.system.servers.valkey
    valkey.stop()
    time.sleep(seconds)
    valkey.start(valkey.port)
    yield


@act("kill the broker", "broker", 0, 3, frozenset())
def kill_broker(scene: Scene, _chance: random.Random, seconds: float) -> Iterator[None]:
    valkey = scene.system.servers.valkey
    valkey.kill()
    time.sleep(seconds)
    valkey.start(valkey.port)
    yield


# Database


@act("restart PostgreSQL, fast", "database", 0, 4, NO_DATABASE)
def restart_fast(scene: Scene, _chance: random.Random, seconds: float) -> Iterator[None]:
    postgres = scene.system.servers.postgres
    postgres.stop()
    time.sleep(seconds)
    postgres.start(postgres.port)
    yield


@act("restart PostgreSQL, immediate", "database", 0, 4, NO_DATABASE)
def restart_immediate(scene: Scene, _chance: random.Random, seconds: float) -> Iterator[None]:
    postgres = scene.system.servers.postgres
    postgres.stop("immediate")
    time.sleep(seconds)
    postgres.start(postgres.port)
    yield


@act("fill all connections", "database", 3, 8, NO_DATABASE)
def fill_connections(scene: Scene, _chance: random.Random, seconds: float) -> Iterator[None]:
    url = scene.system.servers.postgres.url(APPLICATION, scene.system.engine.url.database or "")
    held: list[psycopg.Connection] = []
    until = time.monotonic() + seconds
    try:
        while time.monotonic() < until:
            try:
                held.append(psycopg.connect(url, sslmode="disable"))
            except psycopg.OperationalError:
                time.sleep(0.05)  # full; a session of a worker that ends is taken at once
        yield
    finally:
        for connection in held:
            with suppress(psycopg.Error):
                connection.close()


# Provider


def mood(name: str, reach: float, explains: frozenset[str] = NO_PROVIDER) -> None:
    @act(f"provider {name}", "provider", 1, reach, explains)
    def play(scene: Scene, _chance: random.Random, seconds: float) -> Iterator[None]:
        scene.provider.waking.clear()
        scene.provider.mood = name
        time.sleep(seconds)
        scene.provider.mood = "well"
        scene.provider.waking.set()
        yield


mood("down", 8)
mood("throttling", 8)
mood("garbled", 4)
# An answer that comes after the soft limit of the run is none.
mood("hanging", 14, NO_PROVIDER | {"TIME_LIMIT"})


@act("provider answers nonsense", "provider", 0, 0, frozenset())  # explained by the provider's own record
def answer_nonsense(scene: Scene, chance: random.Random, _: float) -> Iterator[None]:
    scene.provider.nonsense_left = chance.randint(1, 3)
    yield


# Clock


def skew(name: str, seconds_ahead: int) -> None:
    @act(name, "clock", 4, 15, frozenset())
    def play(scene: Scene, _chance: random.Random, seconds: float) -> Iterator[None]:
        if scene.clock is not None:
            scene.clock.set(seconds_ahead)
            time.sleep(seconds)
            scene.clock.set(0)
        yield


skew("clock 10 minutes ahead", TEN_MINUTES)
skew("clock 10 minutes behind", -TEN_MINUTES)

__all__ = ["ACTS", "Act", "Scene"]
