"""What every ``celery`` command meets before any of our code runs."""

import ast
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from settings import Settings
from tasks import refuse_foreign_modules
from tasks.app import configuration

ROOT = Path(__file__).resolve().parents[2]
CELERY = [sys.executable, "-m", "celery"]


def run(command: list[str], environment: dict[str, str], folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return subprocess.run(
        command, env=kept | environment, cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )


def sources() -> list[Path]:
    return [ROOT / "celeryconfig.py", *sorted((ROOT / "tasks").glob("*.py"))]


def test_importing_tasks_starts_no_thread_opens_no_connection_and_reads_no_setting() -> None:
    code = (
        "import socket, sys, threading\n"
        "def refuse(*_): raise AssertionError('a connection')\n"
        "socket.socket.connect = refuse\n"
        "import tasks, tasks.cli\n"
        "assert threading.active_count() == 1, threading.enumerate()\n"
        "heavy = {'sqlalchemy', 'numpy', 'kreuzberg', 'rich', 'pydantic'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    ended = run([sys.executable, "-c", code], {})
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("command", ["worker", "flower", "documents status"])
def test_without_settings_every_command_ends_2_with_one_clear_message(command: str) -> None:
    ended = run([*CELERY, "-A", "tasks", *command.split()], {})
    assert ended.returncode == 2
    assert ended.stderr.count("The settings cannot be used:") == 1
    assert "DATABASE_URL is not set" in ended.stderr
    assert "Traceback" not in ended.stderr + ended.stdout


def test_a_foreign_celeryconfig_in_the_current_folder_is_not_taken(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "celeryconfig.py").write_text("raise SystemExit('the foreign celeryconfig was read')")
    (tmp_path / "tasks.py").write_text("raise SystemExit('the foreign tasks were read')")
    installed = str(Path(sys.executable).parent / "celery")
    ended = run([installed, "-A", "tasks", "report"], environment, tmp_path)
    assert ended.returncode == 0, ended.stderr + ended.stdout
    assert "worker_disable_prefetch" in ended.stdout


def test_a_module_of_another_project_under_one_of_our_names_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign = tmp_path / "settings.py"
    foreign.touch()
    spec = importlib.util.spec_from_file_location("settings", foreign)
    assert spec is not None
    module = ModuleType("settings")
    module.__spec__ = spec
    monkeypatch.setitem(sys.modules, "settings", module)
    with pytest.raises(ImportError, match=re.escape(f"another one: {foreign}")):
        refuse_foreign_modules(ROOT)


def test_the_message_is_never_the_job(configured: Settings) -> None:
    values = configuration()
    assert values["task_acks_late"] is False
    assert values["worker_disable_prefetch"] is True
    assert values["worker_prefetch_multiplier"] == 1
    assert values["task_reject_on_worker_lost"] is False
    assert values["task_retry_on_worker_lost"] is False
    assert values["worker_cancel_long_running_tasks_on_connection_loss"] is False
    assert values["accept_content"] == ["json"]
    assert values["task_create_missing_queues"] is False
    assert "result_backend" not in values


def test_every_setting_is_one_that_celery_knows(configured: Settings) -> None:
    from celery.app.defaults import SETTING_KEYS

    assert set(configuration()) <= set(SETTING_KEYS)


def test_every_stage_has_a_hard_limit_and_a_soft_one_before_it(configured: Settings) -> None:
    limits = configuration()["task_annotations"]
    assert limits["tasks.parse"] == {"time_limit": 270, "soft_time_limit": 240}
    assert limits["tasks.embed"] == {"time_limit": 150, "soft_time_limit": 120}
    for task in ("tasks.claim", "tasks.enqueue_document"):
        assert 0 < limits[task]["soft_time_limit"] < limits[task]["time_limit"]


@pytest.mark.parametrize("source", sources(), ids=lambda path: path.name)
def test_no_source_uses_celerys_own_retries_delays_or_canvas(source: Path) -> None:
    refused = {"countdown", "eta", "expires", "autoretry_for", "link", "chain", "chord", "group", "beat_schedule"}
    tree = ast.parse(source.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword):
            assert node.arg not in refused - {"group"}, f"{source.name}:{node.value.lineno}"
        if isinstance(node, ast.Attribute):
            on_self = isinstance(node.value, ast.Name) and node.value.id == "self"
            assert not (on_self and node.attr == "retry"), f"{source.name}:{node.lineno}"
        if isinstance(node, ast.ImportFrom) and node.module == "celery":
            assert not refused & {alias.name for alias in node.names}, f"{source.name}:{node.lineno}"


@pytest.mark.parametrize("source", [p for p in sources() if p.name != "database.py"], ids=lambda path: path.name)
def test_no_source_but_the_database_module_holds_sql(source: Path) -> None:
    text = source.read_text()
    assert not re.search(r"\b(SELECT|INSERT INTO|UPDATE|DELETE FROM)\s+\w+", text)
    assert "sqlalchemy import text" not in text
