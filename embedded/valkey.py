"""Valkey, the broker: memory that is written to disk every second and never drops a key to make room."""

import os
import signal
import socket

from embedded.processes import Process, server_environment, spawn
from embedded.server import LOOPBACK, Server


class ValkeyServer(Server):
    """The broker of DIR."""

    name = "valkey"
    title = "Valkey"
    stop_signals = ((signal.SIGTERM, 30.0), (signal.SIGKILL, 30.0))

    @property
    def url(self) -> str:
        """Database 0, with the password."""
        return f"redis://:{self.password('default')}@{LOOPBACK}:{self.port}/0"

    def flush(self) -> None:
        """Forget every key, as an operator's mistake would."""
        self.command("FLUSHALL")

    def command(self, *words: str) -> str:
        """Send one command and return the first line of the answer, its type sign included.

        Raises:
            OSError: nobody answers.
        """
        return self._command(self.port, *words)

    def _initialise(self) -> None:
        self._make_data_folder(self.data)

    def _spawn(self, port: int, folder: int) -> Process:
        configuration = [
            f"bind {LOOPBACK}",
            f"port {port}",
            f"requirepass {self.password('default')}",
            "appendonly yes",
            "appendfsync everysec",
            'save ""',
            "maxmemory-policy noeviction",  # a queue that forgets messages to make room loses work silently
        ]
        # Read from a pipe: a command line would show the password to every user of the machine.
        reading, writing = os.pipe()
        try:
            process = spawn(
                [self.binaries().valkey_server, "-"],
                log=self.log,
                env=server_environment(),
                cwd=self.data,
                account=self.account,
                pass_fds=[folder],
                stdin=reading,
                umask=0o077,
            )
            os.write(writing, "\n".join(configuration).encode() + b"\n")
        finally:
            os.close(reading)
            os.close(writing)
        return process

    def _ready(self, process: Process, port: int) -> bool:
        try:
            return self._command(port, "PING") == "+PONG"
        except OSError:
            return False

    def _command(self, port: int, *words: str) -> str:
        """The protocol is a few lines of work; importing a client takes longer than the server's start."""
        with socket.create_connection((LOOPBACK, port), timeout=10) as connection:
            answers = connection.makefile("r", encoding="utf-8", newline="\r\n")
            with answers:
                for command in (("AUTH", self.password("default")), words):
                    connection.sendall((" ".join(command) + "\r\n").encode())
                    answer = answers.readline().removesuffix("\r\n")
                    if not answer or answer.startswith("-"):
                        raise ConnectionError(f"Valkey refused {command[0]}: {answer or 'it hung up'}")
        return answer
