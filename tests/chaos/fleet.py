"""Workers under a process supervisor: each that ends is started again, and each end that nobody meant is noted."""

import os
import signal
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.end_to_end.conftest import System, Worker

RESTART_AFTER = 0.5  # s, as a process supervisor would


@dataclass
class Member:
    """One place in the fleet, and the worker that fills it now."""

    name: str
    options: Sequence[str]
    settings: dict[str, str]
    worker: Worker
    doomed: bool = False  # the director means its end


@dataclass(frozen=True)
class Death:
    """A worker ended that nobody had ended."""

    name: str
    code: int
    said: str


@dataclass
class Fleet:
    """The workers of a chaos run."""

    system: System
    members: list[Member] = field(default_factory=list)
    deaths: list[Death] = field(default_factory=list)
    starts: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _ended: threading.Event = field(default_factory=threading.Event)
    _keeper: threading.Thread | None = None

    def add(self, name: str, *options: str, **settings: str) -> None:
        """One more worker, which is replaced whenever it ends."""
        self.members.append(Member(name, options, settings, self._start(name, options, settings)))

    def _start(self, name: str, options: Sequence[str], settings: dict[str, str]) -> Worker:
        self.starts += 1
        return self.system.start_worker(*options, name=name, until=(), **settings)

    def keep(self) -> None:
        """Start the thread that replaces what ended."""
        self._keeper = threading.Thread(target=self._keep, name="keeper")
        self._keeper.start()

    def close(self) -> None:
        """Replace nothing any more; the workers run on."""
        self._ended.set()
        if self._keeper is not None:
            self._keeper.join()

    def _keep(self) -> None:
        while not self._ended.wait(0.1):
            for member in self.members:
                code = member.worker.process.poll()
                if code is None:
                    continue
                with self._lock:
                    if not member.doomed:
                        self.deaths.append(Death(member.name, code, member.worker.said[-3000:]))
                    member.doomed = False
                    if not self._ended.wait(RESTART_AFTER):
                        member.worker = self._start(member.name, member.options, member.settings)

    def end(self, place: int, number: int) -> None:
        """Send a worker a signal that means its end."""
        with self._lock:
            member = self.members[place]
            if member.worker.process.poll() is None:
                member.doomed = True
                member.worker.process.send_signal(number)

    def children(self, place: int) -> list[int]:
        """The pool children of a worker."""
        pid = self.members[place].worker.process.pid
        with suppress(OSError):
            return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        return []

    def tree(self, place: int) -> list[int]:
        """A worker and its children, the worker first."""
        return [self.members[place].worker.process.pid, *self.children(place)]

    def said(self) -> str:
        """What all workers of this run said."""
        return "\n".join(worker.said for worker in self.system.workers)


def signal_all(pids: Sequence[int], number: int) -> None:
    """Send each of them a signal; some may be gone."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def freeze(pids: Sequence[int], seconds: float) -> None:
    """Stop processes as a paused virtual machine does, then let them go on where they were."""
    signal_all(pids, signal.SIGSTOP)
    try:
        time.sleep(seconds)
    finally:
        signal_all(pids, signal.SIGCONT)
