"""Processes that outlive this program: started detached, found again, never mistaken for a stranger's."""

import contextlib
import os
import pwd
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from embedded.errors import EmbeddedError

POLL_SECONDS = 0.02

# Children of this very process: they must be reaped, or they stay zombies that look alive.
_children: dict[int, subprocess.Popen[bytes]] = {}


@dataclass(frozen=True)
class Process:
    """A process by its pid *and* the time it started: after a crash a pid alone may be anybody's."""

    pid: int
    started: str

    @classmethod
    def of(cls, pid: int) -> Self | None:
        """The process that has this pid now; None when there is none."""
        started = _start_time(pid)
        return None if started is None else cls(pid, started)

    @property
    def alive(self) -> bool:
        child = _children.get(self.pid)
        if child is not None and child.poll() is not None:
            del _children[self.pid]
        return _start_time(self.pid) == self.started

    def send(self, number: signal.Signals) -> None:
        """Send a signal; nothing when the process is gone.

        Raises:
            EmbeddedError: it belongs to another user.
        """
        if not self.alive:
            return
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return
        except PermissionError:
            raise EmbeddedError(
                f"process {self.pid} belongs to another user; stop it as the user who started it."
            ) from None

    def kill_group(self) -> None:
        """Kill what is left of the process group that this process leads or led."""
        if _start_time(self.pid) in (
            None,
            self.started,
        ):  # else the pid, so the group, is a stranger's by now
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    def wait(self, seconds: float) -> bool:
        """Wait until it has ended, at most ``seconds``; True when it has."""
        deadline = time.monotonic() + seconds
        while self.alive:
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_SECONDS)
        return True


def _start_time(pid: int) -> str | None:
    """When the living process ``pid`` started, in any unit that tells two processes apart."""
    if sys.platform != "linux":
        shown = subprocess.run(  # noqa: S603
            ["/bin/ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
        ).stdout.strip()
        return None if not shown or shown.startswith("Z") else shown.split(maxsplit=1)[1]
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command's name comes second, in parentheses, and may hold anything, parentheses too.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else f"{boot} {fields[19]}"


@dataclass(frozen=True)
class Account:
    """The user that the servers run as when this program is root: PostgreSQL refuses to run as root."""

    name: str
    uid: int
    gid: int

    @classmethod
    def for_servers(cls, name: str) -> Self | None:
        """The account to drop to; None for a plain user, whose servers run as himself."""
        if os.geteuid() != 0:
            return None
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            raise EmbeddedError(f"there is no user {name!r} to run the servers as; name one with --user.") from None
        if entry.pw_uid == 0:
            raise EmbeddedError("PostgreSQL does not run as root; name another user with --user.")
        return cls(name, entry.pw_uid, entry.pw_gid)


def dropped_to(account: Account | None) -> dict[str, Any]:
    """Arguments of ``subprocess`` that start a program as ``account``, with none of root's groups."""
    if account is None:
        return {}
    return {"user": account.uid, "group": account.gid, "extra_groups": []}


def server_environment() -> dict[str, str]:
    """What a server sees of the environment: nothing of the caller's, least of all its secrets."""
    return {"PATH": os.defpath, "LC_ALL": "C.UTF-8", "TZ": "UTC"}


def spawn(
    command: Sequence[str | Path],
    *,
    log: Path,
    env: Mapping[str, str],
    cwd: Path | str,
    account: Account | None = None,
    pass_fds: Sequence[int] = (),
    stdin: int = subprocess.DEVNULL,
    umask: int = -1,
) -> Process:
    """Start a program that survives this one: own session, output appended to ``log`` (0600)."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        child = subprocess.Popen(  # noqa: S603
            [str(part) for part in command],
            stdin=stdin,
            stdout=descriptor,
            stderr=descriptor,
            env=dict(env),
            cwd=cwd,  # entered before root is given up, so that it need not be reachable for the account
            pass_fds=tuple(pass_fds),
            start_new_session=True,
            umask=umask,
            **dropped_to(account),
        )
    finally:
        os.close(descriptor)
    _children[child.pid] = child
    process = Process.of(child.pid)
    return process or Process(child.pid, "ended at once")
