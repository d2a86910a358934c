"""How soon an idle worker claims a retry that became due, and what the idle worker costs the database.

    python -m benchmarks.retry_latency [retries]

Documents fail once, to be retried at times about 1.3 s apart; then a worker is started as anyone would start it.
Prints seconds from ``next_retry_at`` to the claim, by the database's clock, and transactions a second of a worker
with nothing to do. Takes about three minutes.
"""

import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from statistics import median, quantiles

import psycopg
from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool

from domain.claim import claim_jobs
from domain.enqueue import Upload, enqueue_document, register_model
from domain.fail import fail_attempt
from domain.failures import Failure, FailureType
from domain.statuses import Task
from domain.workers import note_worker_stopped, register_worker
from embedded.postgres import APPLICATION
from embedded.servers import Servers, start
from stages.embed import open_embedder
from stages.store import open_store

PROJECT = Path(__file__).resolve().parent.parent
HEAD_START = 25.0  # s, for the worker to be up before the first retry is due
APART = 1.3  # s between retries, so that each finds the worker idle
REST = 65.0  # s, until the worker takes itself to be idle and autovacuum is done
IDLE = 20.0  # s over which the idle worker's transactions are counted

LATE = """
    SELECT extract(epoch FROM later.started_at - earlier.next_retry_at)::float
    FROM indexing_attempts earlier
    JOIN indexing_attempts later ON later.job_id = earlier.job_id AND later.attempt_no = earlier.attempt_no + 1
"""
TRANSACTIONS = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()"


def fail_once(servers: Servers, folder: Path, retries: int) -> None:
    """Accept documents and fail each, so that it is due again at a time of its own."""
    store = open_store(servers.env["STORAGE_URL"])
    embedder = open_embedder("local")
    engine = create_engine(
        servers.postgres.url(APPLICATION).replace("postgresql://", "postgresql+psycopg://"), poolclass=NullPool
    )
    with engine.begin() as connection:
        model_id = register_model(connection, embedder.model_name, embedder.dimensions)
        worker_id = register_worker(connection, "benchmark", ["claim", "parse", "embed"], concurrency=1000)
    for number in range(retries):
        path = folder / "note.txt"
        path.write_text(f"Note {number} says what was measured.\n")
        stored = store.put_file(path)
        wait = timedelta(seconds=HEAD_START + APART * (number + random.random()))  # noqa: S311 - only spreads them
        failure = Failure(FailureType.STORAGE_UNAVAILABLE, "to be retried", retry_after=wait)
        with engine.begin() as connection:
            enqueue_document(connection, Upload("owner", f"{number}.txt", stored.uri, stored.sha256), model_id)
            [claimed] = claim_jobs(connection, worker_id, 1, list(Task))
            fail_attempt(connection, claimed.claim, failure)
    with engine.begin() as connection:
        note_worker_stopped(connection, worker_id)


@contextmanager
def worker(servers: Servers, folder: Path) -> Iterator[None]:
    command = [sys.executable, "-m", "celery", "-A", "tasks", "worker", "-c", "2"]
    with (folder / "worker.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=PROJECT, env=servers.env, stdout=log, stderr=log)
        try:
            yield
        finally:
            process.terminate()
            process.wait(60)


def main(retries: int = 50) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="holdfast-benchmark-") as name,
        start(Path(name)) as servers,
        psycopg.connect(servers.postgres.url(APPLICATION), autocommit=True) as connection,
    ):
        fail_once(servers, Path(name), retries)
        with worker(servers, Path(name)):
            while len(late := connection.execute(LATE).fetchall()) < retries:
                time.sleep(1)
            time.sleep(REST)
            before, began = count(connection), time.monotonic()
            time.sleep(IDLE)
            idle = (count(connection) - before - 1) / (time.monotonic() - began)
    seconds = sorted(float(value) for (value,) in late)
    print(
        f"{retries} due retries, claimed after: median {median(seconds):.2f} s, 95th percentile "
        f"{quantiles(seconds, n=20)[-1]:.2f} s, latest {seconds[-1]:.2f} s"
    )
    print(f"an idle worker: {idle:.2f} transactions a second")


def count(connection: "psycopg.Connection[tuple[object, ...]]") -> int:
    row = connection.execute(TRANSACTIONS).fetchone()
    assert row is not None
    return int(str(row[0]))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
