"""Health, metrics, limits, and how errors look that no endpoint makes."""

import json
import os
import re
import socket
import subprocess
import sys

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

import settings
from api.__main__ import main
from api.problems import STATUS_OF, problem_of
from domain.errors import DomainError
from domain.failures import FailureType
from domain.schema import SCHEMA_REVISION
from domain.statuses import VersionStatus
from embedded.servers import Servers
from tests.api.conftest import PROJECT, Api, Seed, Shared, code_of, served
from tests.conftest import Engines, WaitUntil
from tests.domain.indexing import Indexing


def test_health_is_open_and_told_in_words(shared: Shared) -> None:
    with shared.api.client() as anyone:
        assert anyone.get("/healthz").json() == {"status": "ok"}
        assert anyone.get("/readyz").json() == {"database": "ok", "migrations": "ok", "broker": "ok"}


def test_without_broker_or_migrations_it_is_not_ready_and_lives(api: Api, servers: Servers, engines: Engines) -> None:
    with api.client() as anyone:
        servers.valkey.stop()
        try:
            answered = anyone.get("/readyz")
            assert (answered.status_code, answered.json()["broker"]) == (503, "away")
            assert answered.headers["retry-after"]
            assert anyone.get("/healthz").status_code == 200
        finally:
            servers.valkey.start()
        with engines.owner.begin() as connection:
            connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0001'")
        answered = anyone.get("/readyz")
        assert answered.status_code == 503
        assert answered.json()["migrations"] == f"at 0001, this program needs {SCHEMA_REVISION}: alembic upgrade head"


def test_the_revision_it_needs_is_the_newest() -> None:
    newest = max((PROJECT / "migrations" / "versions").glob("[0-9]*.py")).name[:4]
    assert newest == SCHEMA_REVISION


def test_metrics_tell_jobs_attempts_waiting_and_stages(api: Api, seed: Seed) -> None:
    def steps(indexing: Indexing) -> None:
        indexing.index("indexed")
        indexing.upload("failed")
        indexing.fail(indexing.bring_to(VersionStatus.PARSING), FailureType.DOCUMENT_CONTENT_INVALID)
        indexing.upload("retried")
        indexing.fail(indexing.bring_to(VersionStatus.PARSING))
        indexing.upload("waiting")

    seed(steps)
    with api.client() as anyone:
        anyone.get("/healthz")
        text = anyone.get("/metrics").text
    samples = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert samples[("holdfast_database_up",)] == 1
    assert samples["holdfast_jobs", ("stage", ""), ("status", "INDEXED")] == 1
    assert samples["holdfast_jobs", ("stage", ""), ("status", "FAILED")] == 1
    assert samples["holdfast_jobs", ("stage", "PARSING"), ("status", "PENDING")] == 1
    assert samples["holdfast_jobs", ("stage", "UPLOADED"), ("status", "PENDING")] == 1
    failed = ("failure_type", "DOCUMENT_CONTENT_INVALID"), ("outcome", "FAILED"), ("status", "FAILED")
    assert samples["holdfast_attempts", *failed] == 1
    assert samples["holdfast_oldest_due_job_seconds", ("task", "parse")] > 0
    assert samples["holdfast_oldest_due_job_seconds", ("task", "embed")] == 0
    assert samples["holdfast_stage_seconds", ("quantile", "0.5"), ("stage", "EMBEDDING")] >= 0
    assert samples["holdfast_http_requests_total", ("method", "GET"), ("route", "/healthz"), ("status", "200")] >= 1


@pytest.mark.parametrize("path", ["/", "/nothing", "/documents/1/nothing", "/admin", "/../etc/passwd", "/%00"])
def test_what_does_not_exist_is_a_problem_too(shared: Shared, path: str) -> None:
    with shared.api.client() as anyone:
        assert code_of(anyone.get(path)) == (404, "NOT_FOUND")


def test_another_method_is_a_problem_that_names_the_right_ones(shared: Shared) -> None:
    with shared.api.client() as anyone:
        answered = anyone.put("/healthz")
        assert code_of(answered) == (405, "METHOD_NOT_ALLOWED")
        assert "GET" in answered.headers["allow"]


def test_every_answer_may_not_be_kept_or_guessed_at(shared: Shared, user: httpx.Client) -> None:
    for path in ("/documents", "/healthz", "/nothing"):
        answered = user.get(path)
        assert answered.headers["x-content-type-options"] == "nosniff"
        assert answered.headers["cache-control"] == "no-store"


def test_each_error_of_the_domain_has_its_code() -> None:
    tree = DomainError.__subclasses__()
    assert tree
    for kind in tree:
        error = kind.__new__(kind)
        error.reason = "expired"  # type: ignore[attr-defined]
        problem = problem_of(error)
        assert problem.status_code == STATUS_OF[problem.code]
        assert problem.code != "INTERNAL_ERROR"


def test_an_error_that_nobody_foresaw_tells_the_caller_nothing(caplog: pytest.LogCaptureFixture) -> None:
    try:
        raise RuntimeError(" ".join(["the", "text", "of", "a", "document"]))
    except RuntimeError as error:
        problem = problem_of(error)
    assert (problem.status_code, problem.code) == (500, "INTERNAL_ERROR")
    assert b"the text of a document" not in problem.response().body
    assert "the text of a document" not in caplog.text
    assert "test_operation.py" in caplog.text


def test_more_requests_than_allowed_are_told_to_come_later(
    configured: settings.Settings, monkeypatch: pytest.MonkeyPatch, wait_until: WaitUntil
) -> None:
    monkeypatch.setenv("API_MAX_REQUESTS", "10")
    settings.settings.cache_clear()
    with served() as api:
        slow = []
        try:
            for _ in range(10):
                connection = socket.create_connection(("127.0.0.1", api.port))
                slow.append(connection)
                connection.sendall(
                    b"POST /search HTTP/1.1\r\nHost: x\r\n"
                    b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
                )
            with api.client() as anyone:
                wait_until(lambda: anyone.get("/documents").status_code == 503)
                answered = anyone.get("/documents")
                assert code_of(answered) == (503, "TOO_BUSY")
                assert int(answered.headers["retry-after"]) > 0
                assert anyone.get("/healthz").status_code == 200
                assert "holdfast_http_requests_in_progress" in anyone.get("/metrics").text
        finally:
            for connection in slow:
                connection.close()


def test_a_missing_setting_stops_the_server_at_its_start_in_one_line_each() -> None:
    started = subprocess.run(
        [sys.executable, "-m", "uvicorn", "api:app"],
        cwd=PROJECT,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert started.returncode == 2
    assert "DATABASE_URL is not set" in started.stderr
    assert "Traceback" not in started.stderr


def test_the_command_prints_a_token_that_opens_the_owners_documents(
    api: Api, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["api", "token", "ann"])
    assert main() == 0
    with api.client(capsys.readouterr().out.strip()) as user:
        assert user.get("/documents").status_code == 200


def test_every_call_has_an_example_of_what_is_asked_and_answered(shared: Shared) -> None:
    with shared.api.client() as anyone:
        document = anyone.get("/openapi.json").json()
        assert "swagger" in anyone.get("/docs").text.lower()
    for path, methods in document["paths"].items():
        for method, call in methods.items():
            where = f"{method} {path}"
            assert call["description"], where
            for content in call.get("requestBody", {}).get("content", {}).values():
                assert content.get("example") or content.get("examples"), where
            for status, answered in call["responses"].items():
                for content in answered.get("content", {}).values():
                    assert content.get("example") or content.get("examples"), f"{where} {status}"
            problem_statuses = set(call["responses"]) - {"200", "202", "204"}
            if path not in ("/healthz", "/readyz", "/metrics"):
                assert {"401", "403", "422", "503"} <= problem_statuses, where
    assert not re.search(r"HTTPValidationError", json.dumps(document))
