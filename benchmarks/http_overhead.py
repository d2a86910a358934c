"""What HTTP costs: claim, fail and complete through the API, against the domain's functions called directly.

    python -m benchmarks.http_overhead [documents]

Prints calls a second of both, and their ratio, for one caller and for four at once. Both go through the same engine
and the same transactions, on one server; batches alternate, so that a busy machine slows both alike. The API runs in
a process of its own, the direct calls in threads of this one.
"""

import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from http.client import HTTPConnection
from itertools import count
from pathlib import Path
from statistics import median

from api.database import Database
from domain.begin import StageRun
from domain.claim import claim_and_begin
from domain.complete import complete_attempt
from domain.enqueue import Upload, enqueue_documents, register_model
from domain.fail import fail_attempt
from domain.failures import Failure, FailureType
from domain.held import Claim
from domain.statuses import Task
from domain.workers import register_worker
from embedded.servers import Servers, start
from settings import Settings
from tests.api.test_races import READY

BATCH = 25
LEASE = timedelta(hours=1)
BROKEN = Failure(FailureType.WORKER_INTERNAL_ERROR, "it broke")

Call = Callable[[Claim | None], None]


@dataclass(frozen=True)
class Bench:
    """The database, a worker and a model; the API on the same database."""

    database: Database
    worker_id: int
    model_id: int
    port: int
    token: str

    def enqueue(self, documents: int) -> None:
        numbers = next(_rounds)
        uploads = [Upload(f"owner-{numbers}", f"{number}.txt", "file:///x") for number in range(documents)]
        self.database.run(lambda connection: enqueue_documents(connection, uploads, self.model_id), 600_000)

    def claims(self, documents: int, ready: bool) -> list[Claim]:
        """Claimed jobs of new documents; ``ready`` ones have everything stored."""
        self.enqueue(documents)

        def take(connection: object) -> list[StageRun]:
            runs = claim_and_begin(connection, self.worker_id, documents, tuple(Task), LEASE)  # type: ignore[arg-type]
            for statement in READY if ready else ():
                # Only what was just claimed is PARSING: all before was completed or waits for a retry.
                connection.exec_driver_sql(only(statement, runs))  # type: ignore[attr-defined]
            return runs

        return [run.claim for run in self.database.run(take, 600_000)]


_rounds = count()


def only(statement: str, runs: Sequence[StageRun]) -> str:
    """The statement on the versions of these runs."""
    table = "v" if " v ON " in statement else "document_versions"
    return f"{statement} WHERE {table}.id IN ({', '.join(str(run.version_id) for run in runs)})"


def directly(bench: Bench) -> dict[str, Call]:
    """The domain's functions, a transaction each."""
    run = bench.database.run
    return {
        "claim": lambda _: used(run(lambda c: claim_and_begin(c, bench.worker_id, 1, tuple(Task), LEASE))),
        "fail": lambda claim: used(run(lambda c: fail_attempt(c, given(claim), BROKEN))),
        "complete": lambda claim: used(run(lambda c: complete_attempt(c, given(claim)))),
    }


def over_http(bench: Bench, connection: HTTPConnection) -> dict[str, Call]:
    """The same through the API, on a kept connection."""

    def post(path: str, body: dict[str, object]) -> None:
        headers = {"Authorization": f"Bearer {bench.token}", "Content-Type": "application/json"}
        connection.request("POST", path, json.dumps(body), headers)
        answered = connection.getresponse()
        content = answered.read()
        assert answered.status == 200, content

    def report(claim: Claim | None, what: str, **content: object) -> None:
        held = given(claim)
        path = f"/admin/indexing-jobs/{held.job_id}/attempts/{held.attempt_id}/{what}"
        post(path, {"workerId": held.worker_id, "claimToken": str(held.token)} | content)

    claim_body: dict[str, object] = {"workerId": bench.worker_id, "limit": 1, "tasks": ["parse", "embed"]}
    return {
        "claim": lambda _: post("/admin/indexing-jobs/claim", claim_body),
        "fail": lambda claim: report(claim, "fail", failureType=BROKEN.type, errorMessage=BROKEN.message),
        "complete": lambda claim: report(claim, "complete"),
    }


def used(result: object) -> None:
    assert result


def given(claim: Claim | None) -> Claim:
    assert claim is not None
    return claim


def batch_seconds(calls: Sequence[Call], claims: Sequence[Claim | None]) -> float:
    """How long the callers, one a thread, need for all claims together."""
    began = time.perf_counter()
    with ThreadPoolExecutor(len(calls)) as threads:
        shares = [claims[place :: len(calls)] for place in range(len(calls))]
        for ended in [threads.submit(call_each, call, share) for call, share in zip(calls, shares, strict=True)]:
            ended.result()
    return time.perf_counter() - began


def call_each(call: Call, claims: Sequence[Claim | None]) -> None:
    for claim in claims:
        call(claim)


def measure(bench: Bench, documents: int, callers: int) -> None:
    connections = [HTTPConnection("127.0.0.1", bench.port, timeout=60) for _ in range(callers)]
    ways = {
        "directly": [directly(bench) for _ in range(callers)],
        "over HTTP": [over_http(bench, connection) for connection in connections],
    }
    for what in ("claim", "fail", "complete"):
        seconds: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(max(2, documents // BATCH)):
            for way, calls in ways.items():
                claims: Sequence[Claim | None] = [None] * BATCH
                if what == "claim":
                    bench.enqueue(BATCH)
                else:
                    claims = bench.claims(BATCH, ready=what == "complete")
                seconds[way].append(batch_seconds([call[what] for call in calls], claims))
        rates = {way: BATCH / median(taken) for way, taken in seconds.items()}
        ratio = rates["over HTTP"] / rates["directly"]
        print(
            f"{what:9}{callers} at once   directly {rates['directly']:6.0f}/s   "
            f"over HTTP {rates['over HTTP']:6.0f}/s   ratio {ratio:.2f}",
            flush=True,
        )
    for connection in connections:
        connection.close()


@contextmanager
def served(servers: Servers, token: str) -> Iterator[int]:
    """The API in a process of its own; its port."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    command = [sys.executable, "-m", "uvicorn", "api:app", "--port", str(port), "--log-level", "warning"]
    env = os.environ | servers.env | {"ADMIN_TOKEN": token}
    process = subprocess.Popen([*command, "--no-access-log"], env=env)
    try:
        while True:
            assert process.poll() is None, "the API did not start"
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                time.sleep(0.1)
        yield port
    finally:
        process.terminate()
        process.wait()


def main(documents: int = 200) -> None:
    token = secrets.token_hex(16)
    with tempfile.TemporaryDirectory(prefix="holdfast-benchmark-") as folder, start(Path(folder)) as servers:
        database = Database(Settings(**{name.lower(): value for name, value in servers.env.items()}))  # type: ignore[arg-type]
        model_id = database.run(lambda connection: register_model(connection, "benchmark:3", 3))
        worker_id = database.run(lambda connection: register_worker(connection, "benchmark", [], 1))
        with served(servers, token) as port:
            bench = Bench(database, worker_id, model_id, port, token)
            for callers in (1, 4):
                measure(bench, documents, callers)
        database.close()


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:2]))
