"""A command with servers and a worker around it, and nothing left of them, however it ends."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import pytest

from embedded.__main__ import main
from embedded.directory import read_record
from embedded.processes import Process
from embedded.run import Worker, run_command
from embedded.servers import Servers, start
from embedded.signals import Signals
from tests.conftest import WaitUntil
from tests.embedded.conftest import PROJECT, assert_nothing_runs

# A worker's first breath on a busy machine.
BOOT_LIMIT = 180

pytestmark = pytest.mark.end_to_end


class BeginRun(Protocol):
    """Starts ``run`` with a command."""

    def __call__(self, root: Path, *command: str) -> "subprocess.Popen[str]": ...


@pytest.fixture
def begin_run() -> Iterator[BeginRun]:
    """Starts ``run`` from where the project is not, in an environment that knows as little as possible."""
    with ExitStack() as begun:

        def begin_run(root: Path, *command: str) -> "subprocess.Popen[str]":
            run = subprocess.Popen(
                [sys.executable, "-m", "embedded", "run", "--dir", str(root), "--", *command],
                cwd="/",
                env={"PATH": os.defpath, "PYTHONPATH": str(PROJECT)},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
            begun.enter_context(run)
            begun.callback(run.terminate)
            return run

        yield begin_run


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """A DIR, tidied up also when the test fails."""
    yield tmp_path / "dir"
    assert main(["down", "--dir", str(tmp_path / "dir")]) == 0


def worker_of(root: Path) -> Process | None:
    """The worker that DIR remembers."""
    runs = read_record(root / "servers.json").get("runs", [])
    return Process(**runs[0]["worker"]) if runs else None


def test_the_command_finds_servers_and_a_worker_and_gives_the_exit_code(directory: Path, begin_run: BeginRun) -> None:
    before = start(directory)
    pids = (before.postgres.process, before.valkey.process)
    run = begin_run(
        directory, "sh", "-c", "celery -A tasks inspect ping -d run-$PPID@$(uname -n) --timeout 60 && exit 7"
    )
    said, complained = run.communicate(timeout=BOOT_LIMIT)
    assert (run.returncode, "pong" in said) == (7, True), said + complained
    assert worker_of(directory) is None
    after = Servers(directory)
    assert (after.postgres.process, after.valkey.process) == pids, "what ran before the command goes on"
    before.stop()
    assert_nothing_runs(directory)


def test_ctrl_c_ends_the_command_and_then_everything(directory: Path, begin_run: BeginRun) -> None:
    lost = start(directory)  # to stay, but they did not
    lost.postgres.kill()
    lost.valkey.kill()
    run = begin_run(directory, "sh", "-c", "echo started; exec sleep 1000")
    assert run.stdout is not None
    assert run.stdout.readline() == "started\n"
    run.send_signal(signal.SIGINT)
    run.communicate(timeout=BOOT_LIMIT)
    assert run.returncode == 128 + signal.SIGINT
    assert_nothing_runs(directory)


def test_sigterm_before_the_command_ends_everything_too(
    directory: Path, begin_run: BeginRun, wait_until: WaitUntil
) -> None:
    run = begin_run(directory, "sh", "-c", "echo started")
    wait_until((directory / "worker.log").exists, limit=BOOT_LIMIT)
    run.send_signal(signal.SIGTERM)
    said, _ = run.communicate(timeout=BOOT_LIMIT)
    assert (run.returncode, said) == (128 + signal.SIGTERM, "")
    assert_nothing_runs(directory)


def test_a_killed_worker_is_replaced_and_a_killed_run_leaves_nothing_to_the_next_start(
    directory: Path, begin_run: BeginRun, wait_until: WaitUntil
) -> None:
    run = begin_run(directory, "sh", "-c", "echo started; exec sleep 1000")
    assert run.stdout is not None
    assert run.stdout.readline() == "started\n"

    first = worker_of(directory)
    assert first is not None
    first.send(signal.SIGKILL)
    wait_until(lambda: worker_of(directory) != first, limit=BOOT_LIMIT)
    second = worker_of(directory)
    assert second is not None
    assert second.alive

    run.kill()
    os.killpg(run.pid, signal.SIGKILL)  # its command, which nothing else would end
    run.communicate()
    assert second.alive
    assert main(["up", "--dir", str(directory)]) == 0
    assert not second.alive
    assert main(["down", "--dir", str(directory)]) == 0
    assert_nothing_runs(directory)


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["sh", "-c", "exit 3"], 3),
        (["sh", "-c", "kill -9 $$"], 128 + signal.SIGKILL),
        (["no-such-command"], 127),
        (["/etc/passwd"], 126),
    ],
)
def test_the_exit_code_is_what_a_shell_would_give(tmp_path: Path, command: list[str], code: int) -> None:
    with Signals() as signals:
        assert run_command(command, Worker(tmp_path, {"PATH": os.defpath}), signals) == code
