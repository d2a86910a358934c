"""What PostgreSQL and Valkey have in common here: a folder, a port, a password, a process."""

import os
import random
import secrets
import signal
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from embedded.binaries import Binaries
from embedded.directory import make_private_folder, read_record, take_lock, write_record
from embedded.errors import EmbeddedError, explain_os_error, explain_output
from embedded.processes import POLL_SECONDS, Account, Process

# Recovery after a crash replays at most max_wal_size of log; Valkey reads its whole append-only file.
START_LIMIT_SECONDS = 120.0

# The children of a server that was killed notice its end and follow.
DATA_LOCK_SECONDS = 30.0

# Below the ports that the system gives to outgoing connections (32768 up): among those, a client that keeps
# trying while a server is down can get connected to itself, and then keeps the server from its port.
PORTS = range(20_000, 32_000)

LOOPBACK = "127.0.0.1"


class Server(ABC):
    """One server of DIR. Started detached; found again by what DIR remembers of it."""

    name: str  # of its folder, log and record below DIR
    title: str  # for people
    stop_signals: Sequence[tuple[signal.Signals, float]]  # each with the seconds it is given

    def __init__(self, root: Path, account: Account | None, binaries: Callable[[], Binaries]) -> None:
        """Look at what DIR remembers; ``binaries`` is asked for programs when one must be started."""
        self.root = root
        self.account = account
        self.binaries = binaries
        self.data = root / self.name
        self.log = root / f"{self.name}.log"
        self._record_file = root / f"{self.name}.json"

    @abstractmethod
    def _initialise(self) -> None:
        """Make or check what is in the data folder."""

    @abstractmethod
    def _spawn(self, port: int, folder: int) -> Process:
        """Start the program; ``folder``, the open and locked data folder, must stay open in it."""

    @abstractmethod
    def _ready(self, process: Process, port: int) -> bool:
        """Whether this process answers, and not a stranger on its port."""

    @property
    def record(self) -> dict[str, Any]:
        """What DIR remembers; read anew each time, as another process may have restarted the server."""
        return read_record(self._record_file)

    @property
    def port(self) -> int:
        """The port it has, or had when it last ran; 0 before its first start."""
        return int(self.record.get("port", 0))

    @property
    def process(self) -> Process | None:
        """The process that this program started, while it lives."""
        known = self.record.get("process")
        process = None if known is None else Process(known["pid"], known["started"])
        return process if process is not None and process.alive else None

    @property
    def running(self) -> bool:
        return self.process is not None

    def password(self, of: str) -> str:
        """A password of this server; made at first use, then kept in DIR."""
        passwords = self.record.get("passwords", {})
        if of not in passwords:
            # Letters and digits alone, so that it needs no quoting in a URL, a shell or a configuration file.
            passwords[of] = secrets.token_hex(24)
            self._remember(passwords=passwords)
        return str(passwords[of])

    def start(self, port: int | None = None) -> bool:
        """Start it, unless it runs; wait until it answers. False when it was running.

        Args:
            port: the only port to take; by default the remembered one if it is free, else any.

        Raises:
            EmbeddedError: it cannot start, and why.
        """
        process = self.process
        if process is not None:
            if port not in (None, self.port):
                raise EmbeddedError(
                    f"{self.title} of {self.root} runs on port {self.port} already; "
                    f"stop it first (python -m embedded down --dir {self.root})."
                )
            self._wait_until_ready(process, self.port)
            return False
        try:
            self._initialise()
            self._start(port)
        except OSError as error:
            raise explain_os_error(error, self.root) from None
        return True

    def _start(self, port: int | None) -> None:
        with self._locked_data() as folder:
            for candidate in self._ports(port):
                said_before = self.log.stat().st_size if self.log.exists() else 0
                process = self._spawn(candidate, folder)
                try:
                    self._remember(port=candidate, process={"pid": process.pid, "started": process.started})
                    if self._wait_until_ready(process, candidate):
                        return
                except BaseException:
                    process.send(signal.SIGKILL)
                    raise
                said = self.log.read_bytes()[said_before:].decode(errors="replace")
                if "Address already in use" not in said:
                    raise explain_output(f"{self.title} did not start", said, self.root, self.log)
        raise EmbeddedError(f"{self.title} found no free port on {LOOPBACK}; free one, or name one.")

    def stop(self) -> bool:
        """Stop it cleanly, more firmly when it takes too long; False when it was not running."""
        process = self.process
        if process is not None:
            for number, seconds in self.stop_signals:
                process.send(number)
                if process.wait(seconds):
                    break
        return process is not None

    def kill(self) -> None:
        """End it by SIGKILL, as a crash would."""
        process = self.process
        if process is not None:
            process.send(signal.SIGKILL)
            process.wait(START_LIMIT_SECONDS)

    def _ports(self, fixed: int | None) -> Iterator[int]:
        if fixed is not None:
            if not _free(fixed):
                raise EmbeddedError(
                    f"port {fixed} is taken by another program; stop that, or give {self.title} another port."
                )
            yield fixed
            return
        if self.port and _free(self.port):
            yield self.port
        for _ in range(100):
            candidate = random.choice(PORTS)  # noqa: S311 (no secret)
            if _free(candidate):
                yield candidate

    @contextmanager
    def _locked_data(self) -> Iterator[int]:
        """The data folder, open and locked.

        The server inherits the descriptor and with it the lock, and so do its own children: the folder is
        unlocked when the last of them has ended, also after a crash, and never has two servers.
        """
        folder = os.open(self.data, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if not take_lock(folder, DATA_LOCK_SECONDS):
                raise EmbeddedError(
                    f"another server still uses {self.data}, and this program did not start it; "
                    f"end it (`fuser {self.data}` names it) and try again."
                )
            yield folder
        finally:
            os.close(folder)

    def _wait_until_ready(self, process: Process, port: int) -> bool:
        """Wait for the answer; False when the process ended instead."""
        deadline = time.monotonic() + START_LIMIT_SECONDS
        while process.alive:
            if self._ready(process, port):
                return True
            if time.monotonic() > deadline:
                raise EmbeddedError(f"{self.title} does not answer on port {port}; see {self.log}")
            time.sleep(POLL_SECONDS)
        return False

    def _make_data_folder(self, path: Path) -> None:
        make_private_folder(path)
        if self.account is not None:
            os.chown(path, self.account.uid, self.account.gid)

    def _remember(self, **values: Any) -> None:
        write_record(self._record_file, {**self.record, **values})


def _free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True
