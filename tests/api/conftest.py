"""A real server on a free port for each test that asks for one, and callers that speak to it over real connections."""

import asyncio
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
import uvicorn
from sqlalchemy import select

import settings
from domain.cancel import cancel_document
from domain.tables import JOB_IS_LIVE, jobs
from embedded.postgres import APPLICATION, OWNER
from embedded.servers import Servers
from tasks.app import app as celery_app
from tests.conftest import TEMPLATE, Database, Engines, WaitUntil
from tests.domain.indexing import Indexing

ADMIN_TOKEN = secrets.token_hex(16)
JWT_SECRET = secrets.token_hex(32)
PROJECT = Path(__file__).resolve().parent.parent.parent


def user_token(owner_id: object, secret: str = JWT_SECRET, algorithm: str | None = "HS256", **claims: Any) -> str:
    """A user's token; ``claims`` go beside ``sub``."""
    key = secret if algorithm else ""
    return jwt.encode({"sub": owner_id, **claims}, key, algorithm=algorithm or "none")


def soon(seconds: float) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=seconds)


@dataclass(frozen=True)
class Api:
    """Where a server listens, and how callers of each kind speak to it."""

    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def client(self, token: str | None = None, **options: Any) -> httpx.Client:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return httpx.Client(base_url=self.url, headers=headers | options.pop("headers", {}), timeout=60, **options)

    def admin(self) -> httpx.Client:
        return self.client(ADMIN_TOKEN)

    def user(self, owner_id: str = "ann") -> httpx.Client:
        return self.client(user_token(owner_id, exp=soon(600)))


@dataclass(frozen=True)
class ApiProcess(Api):
    """An API in a process of its own."""

    process: subprocess.Popen[bytes]


def free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def environment(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """With the secrets that the API needs."""
    return environment | {"ADMIN_TOKEN": ADMIN_TOKEN, "JWT_SECRET": JWT_SECRET}


@contextmanager
def served() -> Iterator[Api]:
    """The API in a thread of this process, with the settings of this process."""
    from api.app import make_app

    port = free_port()
    server = uvicorn.Server(uvicorn.Config(make_app(), host="127.0.0.1", port=port, log_config=None, lifespan="on"))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()), name="api")
    thread.start()
    try:
        deadline = time.monotonic() + 30
        while not server.started:
            assert thread.is_alive(), "the API ended at its start"
            assert time.monotonic() < deadline, "the API did not start"
            time.sleep(0.01)
        yield Api(port)
    finally:
        server.should_exit = True
        thread.join(30)
        assert not thread.is_alive(), "the API does not end"


@pytest.fixture
def api(configured: settings.Settings) -> Iterator[Api]:
    """The API on the test's own database."""
    with served() as running:
        yield running


@pytest.fixture(scope="session")
def shared(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator["Shared"]:
    """One API for all tests whose rows do not mind those of others; each speaks as owners of its own."""
    with servers.postgres.connect("postgres") as connection:
        servers.postgres.create_database(connection, "holdfast_api", template=TEMPLATE)
    database = Database.of(servers, "holdfast_api")
    environment = servers.env | {
        "DATABASE_URL": servers.postgres.url(APPLICATION, database.name),
        "DATABASE_OWNER_URL": servers.postgres.url(OWNER, database.name),
        "STORAGE_URL": tmp_path_factory.mktemp("documents").as_uri(),
        "ADMIN_TOKEN": ADMIN_TOKEN,
        "JWT_SECRET": JWT_SECRET,
        "MAX_DOCUMENT_BYTES": "2000000",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        settings.settings.cache_clear()
        assert celery_app.conf.broker_url  # read now: Celery reads its settings once, when it first needs them
        with served() as running:  # it has read its settings; the next test may set others
            patch.undo()
            settings.settings.cache_clear()
            yield Shared(running, Engines.of(database))


@dataclass(frozen=True)
class Shared:
    """The session's API and the engines of its database."""

    api: Api
    engines: Engines

    def seed(self, steps: Callable[[Indexing], Any]) -> Any:
        with self.engines.app.begin() as connection:
            return steps(Indexing(connection))


@pytest.fixture
def shared_admin(shared: Shared) -> Iterator[httpx.Client]:
    with shared.api.admin() as client:
        yield client


@pytest.fixture
def owner(shared: Shared) -> str:
    """An owner that no other test has; what other tests left to be done is cancelled."""
    with shared.engines.app.begin() as connection:
        live = select(jobs.c.document_id).where(JOB_IS_LIVE).distinct()
        for document_id in connection.execute(live).scalars().all():
            cancel_document(connection, document_id)
    return f"owner-{next(_owner_numbers)}"


@pytest.fixture
def user(shared: Shared, owner: str) -> Iterator[httpx.Client]:
    with shared.api.user(owner) as client:
        yield client


_owner_numbers = count(1)


@pytest.fixture
def api_process(environment: dict[str, str], tmp_path: Path, wait_until: WaitUntil) -> Iterator[ApiProcess]:
    """The API as its users start it, ``uvicorn api:app``, in a process of its own."""
    port = free_port()
    log = tmp_path / "uvicorn.log"
    command = [sys.executable, "-m", "uvicorn", "api:app", "--host", "127.0.0.1", "--port", str(port)]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "--no-access-log"],
            env=os.environ | environment,
            cwd=PROJECT,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    running = ApiProcess(port, process)

    def answers() -> bool:
        assert process.poll() is None, log.read_text()
        try:
            return httpx.get(f"{running.url}/healthz").status_code == 200
        except httpx.TransportError:
            return False

    try:
        wait_until(answers, 90)
        yield running
    finally:
        process.terminate()
        # uvicorn tidies up, then ends by the signal it was sent.
        assert process.wait(30) == -signal.SIGTERM, log.read_text()
        assert "Traceback" not in log.read_text(), log.read_text()


@pytest.fixture
def admin(api: Api) -> Iterator[httpx.Client]:
    with api.admin() as client:
        yield client


@pytest.fixture
def ann(api: Api) -> Iterator[httpx.Client]:
    """A user."""
    with api.user("ann") as client:
        yield client


@pytest.fixture
def bob(api: Api) -> Iterator[httpx.Client]:
    """Another user."""
    with api.user("bob") as client:
        yield client


Seed = Callable[[Callable[[Indexing], Any]], Any]


@pytest.fixture
def seed(engines: Engines) -> Seed:
    """Runs steps of the domain's functions in one committed transaction, with a model of three dimensions."""

    def seed(steps: Callable[[Indexing], Any]) -> Any:
        with engines.app.begin() as connection:
            return steps(Indexing(connection))

    return seed


class HttpWorker:
    """A worker that knows nothing but the API."""

    def __init__(self, admin: httpx.Client, name: str = "http-worker") -> None:
        self.admin = admin
        self.id: int = admin.post("/admin/workers", json={"name": name}).raise_for_status().json()["workerId"]

    def claim(self, limit: int = 1, tasks: list[str] | None = None) -> list[dict[str, Any]]:
        body = {"workerId": self.id, "limit": limit, "tasks": tasks or ["parse", "embed"]}
        claims: list[dict[str, Any]] = (
            self.admin.post("/admin/indexing-jobs/claim", json=body).raise_for_status().json()["claims"]
        )
        return claims

    def proof(self, claim: dict[str, Any]) -> dict[str, Any]:
        return {"workerId": self.id, "claimToken": claim["claimToken"]}

    def report(self, claim: dict[str, Any], what: str, **content: Any) -> httpx.Response:
        path = f"/admin/indexing-jobs/{claim['jobId']}/attempts/{claim['attemptId']}/{what}"
        return self.admin.post(path, json=self.proof(claim) | content)

    def fail(
        self,
        claim: dict[str, Any],
        failure_type: str = "EMBEDDING_PROVIDER_UNAVAILABLE",
        error_message: str = "429 Too Many Requests",
    ) -> httpx.Response:
        return self.report(claim, "fail", failureType=failure_type, errorMessage=error_message)

    def bring_to_storing(self, claim: dict[str, Any], passages: list[str]) -> dict[str, Any]:
        """Report text, chunks and vectors; return the answer to the last report."""
        text = "".join(passages)
        parsed = self.report(
            claim,
            "parsed",
            text=text,
            pageStarts=[0],
            mediaType="text/plain",
            contentSha256=claim["contentSha256"] or "0" * 64,
            sizeBytes=claim["sizeBytes"] or len(text),
        )
        assert parsed.raise_for_status().json()["stage"] == "CHUNKING"
        chunks, start = [], 0
        for passage in passages:
            end = start + len(passage)
            chunks.append({"text": passage, "charStart": start, "charEnd": end, "pageNo": 1, "tokenCount": 3})
            start = end
        stored = self.report(claim, "chunks", chunks=chunks).raise_for_status().json()
        assert stored["stage"] == "EMBEDDING"
        vector = [1.0] + [0.0] * (claim["model"]["dimensions"] - 1)
        embedded = self.report(
            claim, "embeddings", embeddings=[{"chunkId": one["chunkId"], "vector": vector} for one in stored["chunks"]]
        )
        answer: dict[str, Any] = embedded.raise_for_status().json()
        assert answer["stage"] == "STORING"
        return answer


@pytest.fixture
def worker(admin: httpx.Client) -> HttpWorker:
    return HttpWorker(admin)


def code_of(response: httpx.Response) -> tuple[int, str]:
    """Status and code of a problem; also that it is a proper one."""
    assert response.headers["content-type"] == "application/problem+json", response.text
    problem = response.json()
    assert problem["status"] == response.status_code
    assert {"type", "title", "code", "detail"} <= problem.keys()
    assert "Traceback" not in response.text
    return response.status_code, problem["code"]


def violations(engines: Engines) -> list[object]:
    """Every rule of the state machine, asked of the database."""
    from domain.invariants import check_invariants

    with engines.owner.connect() as connection:
        return list(check_invariants(connection))
