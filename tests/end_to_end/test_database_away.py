"""The database restarts, vanishes, ends sessions: workers wait, stop what they may no longer do, and go on."""

import statistics
import time

import pytest
from sqlalchemy import text

from tests.conftest import Engines
from tests.end_to_end.conftest import FAULTY, System

pytestmark = pytest.mark.end_to_end


@pytest.fixture
def system(system: System) -> System:
    system.set_retry_delay(0.5)
    return system


def test_a_worker_that_cannot_renew_for_one_lease_stops_its_stages_itself(system: System) -> None:
    system.set_faults({"stage": "PARSING", "name": "a.txt", "action": "wait"})
    system.upload("a.txt")
    worker = system.start_worker("-c", "1", app=FAULTY)
    system.wait(lambda: system.reached("PARSING", "a.txt"), "the stage runs")
    lease_end = system.one("SELECT lease_expires_at FROM embedding_jobs")
    system.engine.dispose()
    system.servers.postgres.stop()
    stopped_at = time.time()
    try:
        system.wait(lambda: "its lease could not be renewed" in worker.said, "the stage is stopped")
        assert time.time() < max(lease_end.timestamp(), stopped_at + 6) + 1
    finally:
        system.servers.postgres.start(system.servers.postgres.port)
    system.wait_until_all()
    assert worker.process.poll() is None
    [(status, _, reason), ended] = system.attempts("a.txt")
    assert (status, ended) == ("FAILED", ("INDEXED", None, None))
    assert reason in ("LEASE_EXPIRED", "WORKER_KILLED")  # the latter where the database was back before the lease ended


def test_a_database_that_restarts_under_load_loses_no_document(system: System) -> None:
    for number in range(30):
        system.upload(f"{number}.txt")
    worker = system.start_worker("-c", "2")
    system.wait_until_indexed(8)
    system.engine.dispose()
    system.servers.postgres.kill()
    system.servers.postgres.start(system.servers.postgres.port)
    system.wait_until_all()
    assert worker.process.poll() is None
    assert system.one("SELECT count(*) FROM embedding_jobs WHERE retry_count > 2") == 0


def test_sessions_ended_in_every_stage_are_retried(system: System, engines: Engines) -> None:
    stages = ("PARSING", "CHUNKING", "EMBEDDING", "STORING")
    system.set_faults(*({"stage": stage, "name": f"{stage}.txt", "action": "wait"} for stage in stages))
    for stage in stages:
        system.upload(f"{stage}.txt")
    system.start_worker("-c", "4", app=FAULTY)
    system.wait(lambda: all(system.reached(stage, f"{stage}.txt") for stage in stages), "each is in its stage")
    with engines.superuser.connect() as connection:
        connection.execute(
            text(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND application_name = 'holdfast'"
            )
        )
    for stage in stages:
        system.let_go(stage, f"{stage}.txt")
    system.wait_until_all()
    # No transaction was open while they parsed, and each new one begins on a connection that works.
    assert system.one("SELECT max(retry_count) FROM embedding_jobs") <= 1


def test_an_idle_worker_costs_about_one_query_a_second(system: System, engines: Engines) -> None:
    system.start_worker("-c", "2")
    asked = text("SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()")
    with engines.superuser.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        own = 2
        time.sleep(2)
        before, began = connection.execute(asked).scalar_one(), time.monotonic()
        time.sleep(8)
        after, seconds = connection.execute(asked).scalar_one(), time.monotonic() - began
    assert (after - before - own) / seconds < 2


def test_a_due_retry_is_claimed_within_about_a_second(system: System) -> None:
    """The figures of fifty are in benchmarks/retry_latency.py; here a bound for a busy machine."""
    system.set_retry_delay(1)
    system.provider.down = True
    for number in range(5):
        system.upload(f"{number}.txt")
    system.start_worker("-c", "2")
    system.wait(lambda: system.provider.refused >= 5, "each has failed once")
    system.provider.down = False
    system.wait_until_all()
    late = system.rows(
        "SELECT extract(epoch FROM b.started_at - a.next_retry_at) FROM indexing_attempts a "
        "JOIN indexing_attempts b ON b.job_id = a.job_id AND b.attempt_no = a.attempt_no + 1"
    )
    assert statistics.median(float(seconds) for (seconds,) in late) < 2.5
