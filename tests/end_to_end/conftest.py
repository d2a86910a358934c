"""A whole system for each test: database, broker, provider, and workers as an operator starts them."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import OperationalError

from domain.enqueue import Enqueued, Upload, enqueue_document, register_model
from domain.policy import FailurePolicy, read_policies, set_policy
from embedded.servers import Servers
from stages.store import open_store
from tests.conftest import Engines
from tests.end_to_end.provider import DIMENSIONS, Provider

ROOT = Path(__file__).resolve().parents[2]
FAULTY = "tests.end_to_end.faulty_app"
LIMIT = 60.0  # s; generous, since the machine may be busy


@dataclass
class Worker:
    """A worker process and what it said."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and wait for the end; return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(LIMIT)

    def kill(self) -> None:
        """As a power cut would: the children die with their parent."""
        self.process.kill()
        self.process.wait(LIMIT)


@dataclass
class System:
    """Everything of one test. Rows are asked for on an engine of the test's own."""

    servers: Servers
    engine: Engine
    environment: dict[str, str]
    provider: Provider
    folder: Path
    workers: list[Worker] = field(default_factory=list)
    wrapper: Sequence[str] = ()  # a command that each worker is started by

    # Workers

    def start_worker(
        self,
        *options: str,
        app: str = "tasks",
        name: str = "worker",
        until: Sequence[str] = (" ready.", " registered as "),
        **settings: str,
    ) -> Worker:
        """Start a worker and wait until it has said all of ``until``."""
        log = self.folder / f"{name}-{len(self.workers)}.log"
        command = [sys.executable, "-m", "celery", "-A", app, "worker", "-n", f"{name}@test", "-l", "info"]
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*self.wrapper, *command, "--without-gossip", "--without-mingle", *options],
                cwd=ROOT,
                env=self.environment | settings,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        worker = Worker(name, process, log)
        self.workers.append(worker)
        self.wait(
            lambda: process.poll() is not None or all(words in worker.said for words in until),
            "the worker is ready",
        )
        assert process.poll() is None, worker.said
        return worker

    def kill_workers(self) -> None:
        for worker in self.workers:
            worker.kill()

    # Documents

    def upload(self, name: str, content: str | bytes | None = None, **more: Any) -> Enqueued:
        """Store a document and accept it; nobody is told, as if the message had been lost."""
        path = self.folder / "upload"
        content = content if content is not None else text_of(name)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        stored = open_store(self.environment["STORAGE_URL"]).put_file(path)
        with self.engine.begin() as connection:
            model_id = register_model(connection, "openai:counting", DIMENSIONS)
        with self.engine.begin() as connection:
            return enqueue_document(connection, Upload("owner", name, stored.uri, stored.sha256, **more), model_id)

    def documents(self) -> dict[str, str]:
        """The status of every document, by name."""
        return {name: status for name, status in self.rows("SELECT name, status FROM documents")}

    def jobs(self) -> dict[str, str]:
        """The status of the newest job of every document, by name."""
        found = self.rows(
            "SELECT d.name, j.status FROM embedding_jobs j JOIN documents d ON d.id = j.document_id ORDER BY j.id"
        )
        return {name: status for name, status in found}

    def wait_until_all(self, status: str = "INDEXED", limit: float = LIMIT) -> None:
        """Wait until every document's newest job has this status."""
        self.wait(lambda: set(self.jobs().values()) == {status}, f"every job is {status}", limit)

    def wait_until_indexed(self, count: int) -> None:
        """Wait until this many documents are INDEXED."""
        self.wait(lambda: list(self.jobs().values()).count("INDEXED") >= count, f"{count} are done")

    def rows(self, statement: str, **parameters: Any) -> list[tuple[Any, ...]]:
        with self.engine.connect() as connection:
            return [tuple(row) for row in connection.execute(text(statement), parameters)]

    def one(self, statement: str, **parameters: Any) -> Any:
        [[value]] = self.rows(statement, **parameters)
        return value

    def attempts(self, name: str) -> list[tuple[str, str | None, str | None]]:
        """Each attempt of a document: its status, the failure's type and its reason."""
        return [
            (status, failure_type, reason)
            for status, failure_type, reason in self.rows(
                "SELECT a.status, a.failure_type, a.failure_reason FROM indexing_attempts a "
                "JOIN embedding_jobs j ON j.id = a.job_id JOIN documents d ON d.id = j.document_id "
                "WHERE d.name = :name ORDER BY a.id",
                name=name,
            )
        ]

    def set_retry_delay(self, seconds: float) -> None:
        """Shorten the wait before retries, for all types that are retried."""
        from datetime import timedelta
        from decimal import Decimal

        with self.engine.begin() as connection:
            for policy in read_policies(connection):
                delay = timedelta(seconds=seconds)
                set_policy(connection, FailurePolicy(policy.failure_type, policy.retryable, delay, Decimal(1), delay))

    # Faults

    def set_faults(self, *faults: dict[str, Any]) -> None:
        """What goes wrong in workers of the faulty app; see there."""
        Path(self.environment["FAULTS"]).write_text(json.dumps(faults))

    def reached(self, stage: str, name: str) -> bool:
        return (self.folder / f"{stage}-{name}.reached").exists()

    def let_go(self, stage: str, name: str) -> None:
        (self.folder / f"{stage}-{name}.go").touch()

    # Commands

    def command(self, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
        """Run ``celery -A tasks …`` to its end."""
        return subprocess.run(
            [sys.executable, "-m", "celery", "-A", "tasks", *arguments],
            cwd=ROOT,
            env=self.environment | settings,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )

    def wait(self, condition: Callable[[], Any], what: str, limit: float = LIMIT) -> None:
        """Wait until the condition holds; tell what the workers said when it never does."""
        deadline = time.monotonic() + limit
        while not self.holds(condition):
            if time.monotonic() > deadline:
                logs = "\n".join(f"--- {worker.log.name}\n{worker.said[-4000:]}" for worker in self.workers)
                pytest.fail(f"not so after {limit} s: {what}\n{logs}")
            time.sleep(0.05)

    def holds(self, condition: Callable[[], Any]) -> bool:
        """Whether it holds; not, while the test has the database away."""
        try:
            return bool(condition())
        except OperationalError:
            return False


@pytest.fixture
def provider() -> Iterator[Provider]:
    with Provider().serving() as serving:
        yield serving


@pytest.fixture
def system(
    servers: Servers, engines: Engines, environment: dict[str, str], provider: Provider, tmp_path: Path
) -> Iterator[System]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "PYTHONPATH") if name in os.environ}
    faults = tmp_path / "faults.json"
    faults.write_text("[]")
    more = {"FAULTS": str(faults), "LEASE_SECONDS": "6", "PYTHONUNBUFFERED": "1"}
    whole = System(servers, engines.app, kept | environment | provider.environment | more, provider, tmp_path)
    yield whole
    whole.kill_workers()
    if not servers.valkey.running:
        servers.valkey.start()


def text_of(name: str, paragraphs: int = 3) -> str:
    """A text of a few chunks in two languages; no passage of it is also one of another name's text."""
    return "\n\n".join(
        "".join(
            f"{name} {number}.{line} says what was measured. {name} {number}.{line} 무엇을 왜 측정했는지. "
            for line in range(8)
        )
        for number in range(paragraphs)
    )


def words_of(rows: Sequence[tuple[Any, ...]]) -> list[Any]:
    return [value for (value,) in rows]


__all__ = ["FAULTY", "LIMIT", "Connection", "System", "Worker", "text_of", "words_of"]
