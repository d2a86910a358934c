"""Servers that fall silent without hanging up, and names that are gone: the worker goes on, or ends to be restarted.

``LONG=1`` in the environment adds those that take minutes. What each took is printed (``-s``).
"""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from tests.conftest import Engines
from tests.end_to_end.conftest import FAULTY, System, Worker
from tests.end_to_end.hole import Hole, hole_to

pytestmark = pytest.mark.end_to_end
long = pytest.mark.skipif(not os.environ.get("LONG"), reason="takes minutes: make deaf")

LEASE = 6.0
AWAY = 30 if os.environ.get("LONG") else 13  # s: two leases at least
DEAF_LIMIT = 60.0 + 30.0 + 10.0  # s: a minute of deafness, the slowest look at the queues, and a busy machine


@pytest.fixture
def broker_hole(system: System) -> Iterator[Hole]:
    """The broker of the system, behind a hole."""
    port = system.servers.valkey.port
    with hole_to(port) as hole:
        system.environment["REDIS_URL"] = system.environment["REDIS_URL"].replace(f":{port}/", f":{hole.port}/")
        yield hole


@pytest.fixture
def database_hole(system: System) -> Iterator[Hole]:
    port = system.servers.postgres.port
    with hole_to(port) as hole:
        system.environment["DATABASE_URL"] = system.environment["DATABASE_URL"].replace(f":{port}/", f":{hole.port}/")
        yield hole


def tell(what: str, since: float) -> float:
    took = time.monotonic() - since
    print(f"{what}: {took:.1f} s")
    return took


def test_a_database_that_falls_silent_stops_the_stage_within_its_lease_and_is_used_again_once_it_speaks(
    system: System, database_hole: Hole
) -> None:
    system.set_retry_delay(0.5)
    system.set_faults({"stage": "PARSING", "name": "a.txt", "action": "wait"})
    system.upload("a.txt")
    worker = system.start_worker("-c", "1", app=FAULTY)
    system.wait(lambda: system.reached("PARSING", "a.txt"), "the stage runs")
    silent_at = time.monotonic()
    database_hole.swallow()
    system.wait(lambda: "its lease could not be renewed" in worker.said, "the stage is stopped")
    # No later than the lease as it was when the database was last heard, and a look of half a second.
    assert tell("database silent, stage stopped after", silent_at) < LEASE + 1
    database_hole.mend()
    mended_at = time.monotonic()
    system.wait_until_all()
    tell("database speaks again, document indexed after", mended_at)
    assert worker.process.poll() is None
    assert system.attempts("a.txt")[-1] == ("INDEXED", None, None)


@long
@pytest.mark.parametrize("new", [False, True], ids=["old connections", "all connections for 20 s"])
def test_a_worker_whose_broker_fell_silent_without_a_word_goes_on_or_ends_to_be_restarted(
    system: System, broker_hole: Hole, new: bool
) -> None:
    worker = system.start_worker("-c", "1")
    system.upload("before.txt")
    system.wait_until_all()
    silent_at = time.monotonic()
    broker_hole.swallow(new)
    system.upload("after.txt")
    if new:
        time.sleep(20)
        broker_hole.mend()
    system.wait(
        lambda: worker.process.poll() is not None or set(system.jobs().values()) == {"INDEXED"},
        "it goes on or ends",
        limit=2 * DEAF_LIMIT,
    )
    ended = worker.process.poll()
    took = tell(f"broker silent, worker {'goes on' if ended is None else f'ended with {ended}'} after", silent_at)
    assert took < DEAF_LIMIT + (20 if new else 0)
    assert ended in (None, 1)  # a clean exit would not be restarted
    if ended is not None:
        restart(system)
    system.wait_until_all()
    assert set(system.provider.embedded.values()) == {1}


def restart(system: System) -> Worker:
    return system.start_worker("-c", "1", name="again")


def test_a_broker_away_for_leases_costs_no_work_in_hand_and_no_restart(system: System) -> None:
    system.set_faults({"stage": "PARSING", "name": "0.txt", "action": "wait"})
    for number in range(6):
        system.upload(f"{number}.txt")
    worker = system.start_worker("-c", "2", app=FAULTY)
    system.wait(lambda: system.reached("PARSING", "0.txt"), "a stage runs")
    valkey = system.servers.valkey
    valkey.stop()
    time.sleep(AWAY)
    valkey.start(valkey.port)
    back_at = time.monotonic()
    system.let_go("PARSING", "0.txt")
    system.wait_until_all()
    assert tell(f"broker back after {AWAY} s, six documents indexed after", back_at) < 60
    assert worker.process.poll() is None
    assert system.rows("SELECT DISTINCT retry_count FROM embedding_jobs") == [(0,)]


@pytest.fixture
def names(system: System) -> Path:
    """A file of host names that only this test's workers read; the servers are called by them."""
    hosts, resolver = system.folder / "hosts", system.folder / "resolv.conf"
    hosts.write_text("127.0.0.1 localhost database.test broker.test\n")
    resolver.write_text("nameserver 127.0.0.1\noptions timeout:1 attempts:1\n")
    mounts = f"mount --bind {hosts} /etc/hosts && mount --bind {resolver} /etc/resolv.conf"
    system.wrapper = ("unshare", "--mount", "sh", "-c", f'{mounts} && exec "$@"', "sh")
    if subprocess.run([*system.wrapper, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this user may not give a process host names of its own (unshare --mount)")
    for setting, name in (("DATABASE_URL", "database.test"), ("REDIS_URL", "broker.test")):
        system.environment[setting] = system.environment[setting].replace("127.0.0.1", name)
    return hosts


def test_a_worker_outlives_names_that_are_gone(system: System, names: Path, engines: Engines) -> None:
    system.set_retry_delay(0.5)
    worker = system.start_worker("-c", "1")
    system.upload("before.txt")
    system.wait_until_all()
    known = names.read_text()
    names.write_text("127.0.0.1 localhost\n")
    # What it holds must be made anew, and cannot be.
    system.servers.valkey.command("CLIENT", "KILL", "TYPE", "normal")
    with engines.superuser.connect() as connection:
        connection.execute(
            text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'holdfast'")
        )
    system.upload("after.txt")
    system.wait(lambda: "the database cannot be used" in worker.said, "it has noticed")
    names.write_text(known)
    back_at = time.monotonic()
    system.wait_until_all()
    tell("names back, document indexed after", back_at)
    assert worker.process.poll() is None
