"""`run`: servers and one worker around a command, and nothing left of them afterwards."""

import os
import re
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from embedded.directory import locked, open_directory
from embedded.errors import EmbeddedError
from embedded.processes import Process, spawn
from embedded.servers import Servers
from embedded.signals import Signals
from embedded.usage import Usage

PROJECT = Path(__file__).resolve().parent.parent

# Importing the stages on a busy machine takes tens of seconds.
WORKER_START_LIMIT_SECONDS = 180.0

# A worker told to end finishes its current stage; after this it gives the stage back, which loses nothing either.
WORKER_GRACE_SECONDS = 20.0
WORKER_LAST_GRACE_SECONDS = 10.0

# A worker that ends at once, again and again, must not fill the log.
WORKER_RESTART_SECONDS = 5.0


def run(directory: Path, command: Sequence[str], account_name: str | None = None) -> int:
    """Run a command with servers and a worker up; its exit code, 128 + n when signal n ended it.

    Servers that ran before stay; those that this call started are stopped when no other `run` uses them.
    SIGINT, SIGTERM and SIGHUP are passed on to the command, whose end then ends all.

    Raises:
        EmbeddedError: the servers or the worker did not start.
    """
    with Signals() as signals, ExitStack() as tidying:
        root = open_directory(directory)
        with locked(root):
            servers = Servers(root, account_name)
            end_orphans(root)
            servers.start()
            tidying.callback(leave, servers)
            worker = Worker(root, child_environment(servers.env))
            process = worker.start()
            tidying.callback(worker.stop, signals)
            Usage(root).enter(process)
        worker.wait_until_ready(given_up=lambda: bool(signals.received))
        return signals.exit_code if signals.received else run_command(command, worker, signals)


def run_command(command: Sequence[str], worker: "Worker", signals: Signals) -> int:
    """Run the command to its end, in the foreground, and keep the worker alive meanwhile."""
    try:
        child = subprocess.Popen(command, env=worker.env)  # noqa: S603 (the user's own command)
    except (FileNotFoundError, NotADirectoryError):
        print(f"{command[0]}: not found", file=sys.stderr)
        return 127
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        return 126
    with child:
        signals.pass_on_to(child)
        while True:
            try:
                code = child.wait(0.5)
            except subprocess.TimeoutExpired:
                if signals.command_is_late:
                    child.kill()
                elif not signals.received:
                    worker.restart_if_ended()
            else:
                return code if code >= 0 else 128 - code


def leave(servers: Servers) -> None:
    """Stop the servers, unless somebody else needs them."""
    with locked(servers.root):
        usage = Usage(servers.root)
        usage.leave()
        if not usage.needed:
            servers.stop()


class Worker:
    """The Celery worker of one `run`, in a session of its own: Ctrl-C is for the command."""

    def __init__(self, root: Path, env: dict[str, str]) -> None:
        self.root = root
        self.env = env
        self.log = root / "worker.log"
        self.name = f"run-{os.getpid()}"
        self._log_start = 0
        self._started_at = 0.0

    def start(self) -> Process:
        """Start it, without waiting."""
        self._log_start = self.log.stat().st_size if self.log.exists() else 0
        self._started_at = time.monotonic()
        command = [sys.executable, "-m", "celery", "-A", "tasks", "worker", "-l", "INFO", "-n", f"{self.name}@%h"]
        # In the project's folder, so that `tasks` is this project's, wherever the caller stands.
        self.process = spawn(command, log=self.log, env=self.env, cwd=PROJECT)
        return self.process

    def wait_until_ready(self, given_up: Callable[[], bool]) -> None:
        """Wait until it takes messages, or until ``given_up``.

        Raises:
            EmbeddedError: it ended, or takes too long.
        """
        ready = re.compile(re.escape(self.name).encode() + rb"@\S+ ready")
        while not given_up():
            said = self.log.read_bytes()[self._log_start :]
            if ready.search(said):
                return
            if not self.process.alive:
                last = [line for line in said.decode(errors="replace").splitlines() if line.strip()]
                raise EmbeddedError(f"the worker did not start: {last[-1] if last else '?'} (more: {self.log})")
            if time.monotonic() > self._started_at + WORKER_START_LIMIT_SECONDS:
                raise EmbeddedError(f"the worker is not ready after {WORKER_START_LIMIT_SECONDS:.0f} s: {self.log}")
            time.sleep(0.05)

    def stop(self, signals: Signals) -> None:
        """Stop it; one more signal from now on means: faster."""
        told = len(signals.received)
        stop_worker(self.process, hurried=lambda: len(signals.received) > told)

    def restart_if_ended(self) -> None:
        """Start it again when it has ended by itself, as the process supervisor of a deployment would."""
        if self.process.alive or time.monotonic() < self._started_at + WORKER_RESTART_SECONDS:
            return
        print(f"the worker ended and is started again; its log: {self.log}", file=sys.stderr)
        self.process.kill_group()
        with locked(self.root):
            Usage(self.root).enter(self.start())


def stop_worker(worker: Process, hurried: Callable[[], bool]) -> None:
    """Let a worker finish, then let it give back its work, then kill it with all its children.

    Args:
        hurried: asked meanwhile; True skips the waiting for what it runs.
    """
    for number, seconds in (
        (signal.SIGTERM, WORKER_GRACE_SECONDS),
        (signal.SIGQUIT, WORKER_LAST_GRACE_SECONDS),
    ):
        worker.send(number)
        deadline = time.monotonic() + seconds
        while worker.alive and time.monotonic() < deadline and not hurried():
            time.sleep(0.02)
    worker.kill_group()


def end_orphans(root: Path) -> None:
    """Stop the workers of `run` commands that were killed."""
    for orphan in Usage(root).take_orphans():
        stop_worker(orphan, hurried=lambda: False)


def child_environment(env: dict[str, str]) -> dict[str, str]:
    """The caller's environment with ``env`` in it, and with this project and its programs to be found."""
    # Celery would follow these to another broker than REDIS_URL names.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("CELERY_")}
    programs = str(Path(sys.executable).parent)
    inherited["PATH"] = os.pathsep.join([programs, inherited.get("PATH", os.defpath)])
    if Path(sysconfig.get_path("purelib")) != PROJECT:
        inherited["PYTHONPATH"] = os.pathsep.join(filter(None, [str(PROJECT), inherited.get("PYTHONPATH")]))
    return inherited | env
