"""From a folder of files to passages found, through the commands that people type."""

import json
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from domain.statuses import STAGES
from tests.end_to_end.conftest import FAULTY, ROOT, System, text_of

pytestmark = pytest.mark.end_to_end


def documents(system: System, *arguments: str, **settings: str) -> tuple[int, Any, str]:
    """Run a command with ``--json``; return its exit code, what it printed, and what it said beside it."""
    ended = system.command("documents", *arguments, "--json", **settings)
    return ended.returncode, json.loads(ended.stdout) if ended.stdout else None, ended.stderr


def test_the_samples_are_indexed_and_searched_and_what_failed_is_named(system: System, tmp_path: Path) -> None:
    """Real documents of every format, the real offline model, and the commands that people type."""
    local = {"EMBEDDING_PROVIDER": "local"}
    system.start_worker("-c", "2", name="local", **local)
    folder = tmp_path / "문서"
    copytree(ROOT / "samples", folder)
    (folder / ".hidden.md").write_text("nobody reads this\n")

    code, added, said = documents(system, "add", str(folder), "--wait", **local)
    assert code == 1, said
    ended = {Path(one["name"]).name: one for one in added["documents"]}
    assert ".hidden.md" not in ended
    failed = {name: (one["failureType"], one["failureReason"]) for name, one in ended.items() if one["error"]}
    assert failed == {
        "cut-short.pdf": ("DOCUMENT_CONTENT_INVALID", "CORRUPT"),
        "password-protected.pdf": ("DOCUMENT_CONTENT_INVALID", "PASSWORD_REQUIRED"),
    }
    assert {one["status"] for name, one in ended.items() if name not in failed} == {"INDEXED"}
    assert (added["indexed"], added["failed"]) == (len(ended) - 2, 2)

    for question in ("환불은 언제까지 신청할 수 있나요?", "How do I restore the database from a backup?"):
        code, found, said = documents(system, "search", question, "--limit", "3", **local)
        assert code == 0, said
        assert len(found["passages"]) == 3
        assert found["modelsNotAsked"] == []

    runbook = folder / "operations-runbook.md"
    code, again, _ = documents(system, "add", str(runbook), "--wait", **local)
    assert (code, again["unchanged"], again["indexed"]) == (0, 1, 0)
    runbook.write_text(runbook.read_text() + "\nBackups are kept for thirty days.\n")
    code, changed, _ = documents(system, "add", str(runbook), "--wait", **local)
    assert [(one["versionNo"], one["status"]) for one in changed["documents"]] == [(2, "INDEXED")]

    _, history, _ = documents(system, "history", str(changed["documents"][0]["id"]))
    types = [event["type"] for event in history["events"]]
    assert (types.count("INDEXED"), types.count("EMBEDDINGS_STALE")) == (2, 1)
    _, failures, _ = documents(system, "failures")
    assert {Path(one["name"]).name for one in failures["failures"]} == set(failed)
    assert documents(system, "status", str(ended["cut-short.pdf"]["id"]))[0] == 1
    code, checked, _ = documents(system, "check")
    assert (code, checked["violations"]) == (0, [])


def test_an_outage_of_the_provider_is_retried_and_costs_no_second_parse(system: System) -> None:
    system.set_retry_delay(1)
    system.provider.down = True
    system.upload("a.txt")
    system.start_worker("-c", "1")
    system.wait(lambda: system.provider.refused >= 1, "the provider was asked")
    system.provider.down = False
    system.wait_until_all()
    attempts = system.attempts("a.txt")
    assert attempts[0][:2] == ("FAILED", "EMBEDDING_PROVIDER_UNAVAILABLE")
    assert attempts[-1] == ("INDEXED", None, None)
    assert system.one("SELECT count(*) FROM indexing_events WHERE type = 'PARSING_COMPLETED'") == 1
    assert set(system.provider.embedded.values()) == {1}


def test_a_document_whose_retries_run_out_fails_and_its_failure_tells_of_every_attempt(system: System) -> None:
    system.set_retry_delay(0)
    system.provider.down = True
    system.upload("a.txt", max_retry_count=2)
    system.start_worker("-c", "1")
    system.wait_until_all("FAILED")
    assert len(system.attempts("a.txt")) == 3
    [(errors, retries)] = system.rows("SELECT errors, retry_count FROM processing_failures")
    assert [error["attempt"] for error in errors] == [1, 2, 3]
    assert retries == 2
    assert system.documents() == {"a.txt": "FAILED"}


def test_a_second_version_that_fails_in_any_stage_leaves_the_first_searchable(system: System) -> None:
    names = {stage: f"{stage}.txt" for stage in STAGES}
    system.set_faults(*({"stage": stage, "name": name, "action": "refuse"} for stage, name in names.items()))
    firsts = {name: system.upload(name, f"first {text_of(name)}").version_id for name in names.values()}
    plain = system.start_worker("-c", "2", name="plain")
    system.wait_until_all()
    plain.stop()
    before = system.rows("SELECT chunk_id, version_id, status FROM embeddings ORDER BY chunk_id")
    assert {status for *_, status in before} == {"ACTIVE"}

    for name in names.values():
        system.upload(name, f"second {text_of(name)}")
    system.start_worker("-c", "2", app=FAULTY, name="faulty")
    system.wait_until_all("FAILED")
    assert system.rows("SELECT name, current_version_id FROM documents ORDER BY id") == list(firsts.items())
    assert set(system.documents().values()) == {"INDEXED"}
    after = system.rows("SELECT chunk_id, version_id, status FROM embeddings ORDER BY chunk_id")
    assert [row for row in after if row[1] in firsts.values()] == before
    stopped = system.rows("SELECT stopped_stage FROM document_versions WHERE status = 'FAILED' ORDER BY id")
    assert [stage for (stage,) in stopped] == list(STAGES)


def test_a_version_of_a_model_that_this_worker_has_not_fails_and_says_what_to_do(system: System) -> None:
    system.upload("a.txt")
    system.start_worker("-c", "1", EMBEDDING_MODEL="another")
    system.wait_until_all("FAILED")
    assert system.attempts("a.txt") == [("FAILED", "INDEXING_STATE_INCONSISTENT", "MODEL_UNAVAILABLE")]
    assert "openai:counting" in system.one("SELECT last_error_message FROM embedding_jobs")


def test_a_run_that_used_half_its_limit_gives_the_job_back_after_progress(system: System) -> None:
    """The limit bounds a run, never a document: each run stores a batch at least, and none is embedded twice."""
    system.set_faults({"stage": "EMBEDDING", "name": "long.txt", "action": "dawdle", "times": 1})
    system.upload("long.txt", text_of("long.txt", paragraphs=400))
    system.start_worker("-c", "1", app=FAULTY, EMBED_TIME_LIMIT_SECONDS="12")
    system.wait_until_all()
    statuses = [status for status, *_ in system.attempts("long.txt")]
    assert statuses == ["RELEASED", "INDEXED"]
    assert set(system.provider.embedded.values()) == {1}
    assert system.one("SELECT retry_count FROM embedding_jobs") == 0


def test_waiting_documents_run_when_a_worker_starts_without_any_message(system: System) -> None:
    for number in range(5):
        system.upload(f"{number}.txt")
    system.servers.valkey.flush()
    system.start_worker("-c", "2")
    system.wait_until_all()


def test_a_queue_without_a_consumer_leaves_the_document_queued_until_one_starts(system: System) -> None:
    uploaded = system.upload("a.txt")
    system.start_worker("-c", "1", "-Q", "claim,parse", name="parser")
    code, shown, _ = documents(system, "status", str(uploaded.document_id))
    assert code == 0
    assert shown["beingBuilt"]["state"] == "waiting"
    assert shown["beingBuilt"]["queuedSince"]
    system.start_worker("-c", "1", "-Q", "embed", name="embedder")
    system.wait_until_all()
