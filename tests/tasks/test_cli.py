"""The commands' own work: which files a path means, durations, JSON, errors in one line."""

import json
import unicodedata
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from domain.policy import read_policies
from embedded.servers import Servers
from settings import Settings
from tasks.cli import documents
from tasks.cli_add import files_of
from tasks.cli_output import duration, plain
from tasks.cli_policy import parse_duration
from tests.domain.indexing import Indexing


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("a.md", "sub/b.md", "sub/deep/c.txt", ".hidden.md", ".git/config"):
        path = tmp_path / "docs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "docs"


def run(*arguments: str) -> tuple[int, str, str]:
    ended = CliRunner().invoke(documents, list(arguments))
    return ended.exit_code, ended.stdout, ended.stderr


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["docs"], ["docs/a.md", "docs/sub/b.md", "docs/sub/deep/c.txt"]),
        (["docs/"], ["docs/a.md", "docs/sub/b.md", "docs/sub/deep/c.txt"]),
        (["./docs/a.md"], ["docs/a.md"]),
        (["docs/**/*.md"], ["docs/a.md", "docs/sub/b.md"]),
        (["docs", "docs/a.md"], ["docs/a.md", "docs/sub/b.md", "docs/sub/deep/c.txt"]),
        (["docs/.hidden.md"], ["docs/.hidden.md"]),  # named by hand, so meant
    ],
)
def test_a_path_names_files_by_what_was_typed(folder: Path, paths: list[str], names: list[str]) -> None:
    assert list(files_of(paths)) == names


def test_a_korean_name_is_the_same_document_in_whatever_form_the_file_system_spells_it(folder: Path) -> None:
    decomposed = unicodedata.normalize("NFD", "환불.md")
    (folder / decomposed).write_text("환불")
    assert list(files_of([f"docs/{decomposed}"])) == ["docs/환불.md"]


def test_a_path_that_names_nothing_is_refused_before_anything_is_added(folder: Path) -> None:
    with pytest.raises(click.UsageError, match=r"docs/none\.md: no such file or folder"):
        files_of(["docs/a.md", "docs/none.md"])


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("10s", 10), ("5m", 300), ("1h30m", 5400), ("500ms", 0.5), ("2d", 172_800), ("7", 7), ("0", 0)],
)
def test_a_duration_is_read_and_shown_as_people_write_it(text: str, seconds: float) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)
    assert parse_duration(duration(timedelta(seconds=seconds))) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "soon", "5 parsecs", "-3s", "10s later"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(click.UsageError, match="10s, 5m, 1h30m"):
        parse_duration(text)


def test_json_has_camel_case_keys_times_in_utc_and_durations_in_seconds() -> None:
    @dataclass
    class Row:
        failed_at: datetime
        base_delay: timedelta
        factor: Decimal
        page_starts: tuple[int, ...]

    row = Row(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), timedelta(seconds=10), Decimal("2.5"), (0, 7))
    assert json.loads(json.dumps(plain(row))) == {
        "failedAt": "2026-01-02T03:04:05Z",
        "baseDelaySeconds": 10.0,
        "factor": 2.5,
        "pageStarts": [0, 7],
    }


@pytest.mark.usefixtures("connected")
def test_the_policy_is_shown_and_changed_in_what_was_given_alone(indexing: Indexing) -> None:
    code, shown, _ = run("policy", "--json")
    assert code == 0
    assert len(json.loads(shown)["policies"]) == 6
    code, changed, _ = run("policy", "set", "worker_internal_error", "--base-delay", "30s", "--json")
    assert code == 0
    assert json.loads(changed)["baseDelaySeconds"] == 30
    stored = {policy.failure_type: policy for policy in read_policies(indexing.connection)}
    assert stored["WORKER_INTERNAL_ERROR"].base_delay == timedelta(seconds=30)
    assert stored["WORKER_INTERNAL_ERROR"].retryable
    assert stored["STORAGE_UNAVAILABLE"].base_delay == timedelta(seconds=10)


@pytest.mark.usefixtures("connected", "indexing")
@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["status", "99"], 1, "document 99 does not exist"),
        (["history", "99"], 1, "document 99 does not exist"),
        (["policy", "set", "NOPE", "--factor", "2"], 1, "STORAGE_UNAVAILABLE"),
        (["policy", "set", "STORAGE_UNAVAILABLE", "--factor", "0.5"], 1, "factor must be from 1"),
        (["policy", "set", "STORAGE_UNAVAILABLE"], 2, "say what to change"),
        (["add", "/no/such/file"], 2, "/no/such/file: no such file or folder"),
        (["search", " "], 2, "Give some words"),
    ],
)
def test_an_error_is_one_line_that_says_what_to_do(arguments: list[str], code: int, words: str) -> None:
    ended = run(*arguments)
    assert ended[0] == code
    assert words in ended[2]
    assert "Traceback" not in ended[2]


@pytest.mark.usefixtures("connected", "indexing")
@pytest.mark.parametrize("arguments", [["status"], ["failures"], ["history", "1"], ["search", "words"], ["check"]])
def test_an_empty_system_is_no_error_but_for_a_document_that_is_not_there(arguments: list[str]) -> None:
    code, _, said = run(*arguments, "--json")
    assert code == (1 if arguments[0] == "history" else 0), said


def test_a_database_that_is_away_ends_2_and_is_named(connected: Settings, servers: Servers) -> None:
    servers.postgres.stop()
    try:
        code, shown, said = run("status")
    finally:
        servers.postgres.start(servers.postgres.port)
    assert (code, shown) == (2, "")
    assert len(said.splitlines()) == 1
    assert "DATABASE_URL" in said
    assert connected.secrets[0] not in said
