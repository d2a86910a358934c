"""What people and programs see of running stages: never a claim token, never text of a document."""

import json
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from tests.end_to_end.conftest import FAULTY, ROOT, System

pytestmark = pytest.mark.end_to_end


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def flower(system: System) -> Iterator[str]:
    """Flower as anyone would start it; its address."""
    port = free_port()
    log = (system.folder / "flower.log").open("wb")
    process = subprocess.Popen(
        [sys.executable, "-m", "celery", "-A", "tasks", "flower", f"--port={port}"],
        cwd=ROOT,
        env=system.environment | {"FLOWER_UNAUTHENTICATED_API": "true"},
        stdout=log,
        stderr=subprocess.STDOUT,
    )
    address = f"http://127.0.0.1:{port}"
    system.wait(lambda: fetch(f"{address}/healthcheck") == "OK", "Flower answers")
    yield address
    process.terminate()
    process.wait(30)
    log.close()


def fetch(address: str) -> str:
    try:
        with urllib.request.urlopen(address, timeout=10) as answer:  # noqa: S310 - our own Flower
            return str(answer.read().decode())
    except OSError:
        return ""


def runs(flower: str) -> list[dict[str, Any]]:
    """Every stage run that Flower knows, the oldest first."""
    found = json.loads(fetch(f"{flower}/api/tasks?limit=1000") or "{}").values()
    stages = [one for one in found if one["name"] in ("tasks.parse", "tasks.embed")]
    return sorted(stages, key=lambda one: one["received"] or 0)


def test_flower_and_inspect_show_document_attempt_and_worker_but_no_token_and_no_text(
    system: System, flower: str
) -> None:
    system.set_retry_delay(2)
    system.provider.down = True
    system.set_faults({"stage": "STORING", "name": "quiet.txt", "action": "wait"})
    system.upload("quiet.txt")
    system.upload("broken.pdf", b"%PDF-1.7 nothing more")
    system.start_worker("-c", "1", app=FAULTY)
    system.wait(lambda: any(run["state"] == "RETRY" for run in runs(flower)), "Flower shows the retry")
    system.provider.down = False
    system.wait(lambda: system.reached("STORING", "quiet.txt"), "the last stage runs")

    shown = runs(flower)
    [(document, version)] = system.rows(
        "SELECT d.id, v.id FROM documents d JOIN document_versions v ON v.document_id = d.id WHERE name = 'quiet.txt'"
    )
    worker_id = system.one("SELECT id FROM workers")
    mine = [run for run in shown if run["args"].startswith(f"doc={document} ")]
    # Its parse run, and one embed run for each attempt until the provider was back.
    assert [run["name"] for run in mine][:2] == ["tasks.parse", "tasks.embed"]
    for number, run in enumerate(mine[1:], 1):
        assert run["args"] == f"doc={document} version={version} attempt {number} of 4 worker={worker_id}"
    assert mine[1]["state"] == "RETRY"
    assert "EMBEDDING_PROVIDER_UNAVAILABLE" in mine[1]["exception"]
    assert "retry in 2 s" in mine[1]["exception"]
    [failed] = [run for run in shown if run["state"] == "FAILURE"]
    assert "DOCUMENT_CONTENT_INVALID" in failed["exception"]
    assert "not retried" in failed["exception"]

    inspected = system.command("inspect", "active", "--json").stdout
    assert "tasks.embed" in inspected
    pages = "".join(
        [
            *(fetch(f"{flower}/task/{run['uuid']}") + fetch(f"{flower}/api/task/info/{run['uuid']}") for run in shown),
            fetch(f"{flower}/api/tasks?limit=1000"),
            fetch(f"{flower}/api/workers?refresh=true"),
            fetch(f"{flower}/tasks"),
            inspected,
            system.command("inspect", "reserved", "--json").stdout,
            system.command("inspect", "conf", "--json").stdout,
        ]
    )
    tokens = [str(token) for (token,) in system.rows("SELECT claim_token FROM indexing_attempts")]
    texts = [text[:20] for (text,) in system.rows("SELECT text FROM chunks")]
    secrets = [system.environment["REDIS_URL"].split(":")[2].split("@")[0], "the-providers-key"]
    assert len(tokens) >= 3
    assert texts
    for secret in [*tokens, *texts, *secrets]:
        assert secret not in pages
    system.let_go("STORING", "quiet.txt")
    system.wait(lambda: system.jobs() == {"quiet.txt": "INDEXED", "broken.pdf": "FAILED"}, "both ended")
