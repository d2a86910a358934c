"""From a folder of files to passages found, through the commands that people type."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.conftest import FAULTY, System, text_of

pytestmark = pytest.mark.end_to_end


def documents(system: System, *arguments: str, **settings: str) -> tuple[int, Any, str]:
    """Run a command with ``--json``; return its exit code, what it printed, and what it said beside it."""
    ended = system.command("documents", *arguments, "--json", **settings)
    return ended.returncode, json.loads(ended.stdout) if ended.stdout else None, ended.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three good documents, a hidden one, and one that no parser can open."""
    made = tmp_path / "문서"
    (made / "sub").mkdir(parents=True)
    (made / "환불 규정.md").write_text("# 환불 규정\n\n환불은 구매일로부터 7일 안에 신청할 수 있습니다.\n")
    (made / "sub" / "backup.md").write_text("# Backups\n\nThe database is restored from last night's backup.\n")
    (made / "euc-kr.txt").write_bytes("회의는 매주 화요일 오전에 열립니다.\n".encode("euc-kr"))
    (made / "damaged.pdf").write_bytes(b"%PDF-1.7\n1 0 obj\n<< /Type /Catalog >>\n")
    (made / ".hidden.md").write_text("nobody reads this\n")
    return made


def test_a_folder_is_indexed_and_searched_and_what_failed_is_named(system: System, folder: Path) -> None:
    local = {"EMBEDDING_PROVIDER": "local"}
    system.start_worker("-c", "2", name="local", **local)

    code, added, said = documents(system, "add", str(folder), "--wait", **local)
    assert code == 1, said
    by_name = {Path(one["name"]).name: one for one in added["documents"]}
    assert set(by_name) == {"환불 규정.md", "backup.md", "euc-kr.txt", "damaged.pdf"}
    damaged = by_name.pop("damaged.pdf")
    assert (damaged["status"], damaged["failureType"]) == ("FAILED", "DOCUMENT_CONTENT_INVALID")
    assert damaged["failureReason"]
    assert damaged["error"]
    assert {one["status"] for one in by_name.values()} == {"INDEXED"}
    assert (added["indexed"], added["failed"]) == (3, 1)

    for question, expected in (
        ("환불은 언제까지 신청할 수 있나요?", "환불 규정.md"),
        ("How is the database restored?", "backup.md"),
        ("회의는 언제 열리나요?", "euc-kr.txt"),
    ):
        code, found, said = documents(system, "search", question, "--limit", "1", **local)
        assert code == 0, said
        assert Path(found["passages"][0]["name"]).name == expected

    code, again, _ = documents(system, "add", str(folder / "sub"), "--wait", **local)
    assert (code, again["unchanged"], again["indexed"]) == (0, 1, 0)
    (folder / "sub" / "backup.md").write_text("# Backups\n\nBackups are kept for thirty days.\n")
    code, changed, _ = documents(system, "add", str(folder / "sub"), "--wait", **local)
    assert [(one["versionNo"], one["status"]) for one in changed["documents"]] == [(2, "INDEXED")]

    code, history, _ = documents(system, "history", str(by_name["backup.md"]["id"]))
    types = [event["type"] for event in history["events"]]
    assert types.count("INDEXED") == 2
    assert "EMBEDDINGS_STALE" in types
    code, failed, _ = documents(system, "failures")
    assert [Path(one["name"]).name for one in failed["failures"]] == ["damaged.pdf"]
    code, listed, _ = documents(system, "status")
    assert {one["status"] for one in listed["documents"]} == {"INDEXED", "FAILED"}
    assert documents(system, "status", str(damaged["id"]))[0] == 1
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


@pytest.mark.parametrize("stage", ["PARSING", "CHUNKING", "EMBEDDING", "STORING"])
def test_a_second_version_that_fails_in_any_stage_leaves_the_first_searchable(system: System, stage: str) -> None:
    system.set_faults({"stage": stage, "name": "second.txt", "action": "refuse", "times": 1})
    first = system.upload("second.txt", text_of("first content"))
    system.start_worker("-c", "1", name="plain")
    system.wait_until_all()
    system.stop_workers()
    before = system.rows("SELECT chunk_id, status FROM embeddings ORDER BY chunk_id")

    system.upload("second.txt", text_of("second content"))
    system.start_worker("-c", "1", app=FAULTY, name="faulty")
    system.wait_until_all("FAILED")
    assert system.one("SELECT current_version_id FROM documents") == first.version_id
    assert system.documents() == {"second.txt": "INDEXED"}
    mine = "SELECT chunk_id, status FROM embeddings WHERE version_id = :id ORDER BY chunk_id"
    assert system.rows(mine, id=first.version_id) == before
    assert system.one("SELECT stopped_stage FROM document_versions WHERE status = 'FAILED'") == stage


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
