"""A TCP proxy that knows where one message ends and the next begins, and strikes before the message it is told to."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum, auto
from typing import Self

LOOPBACK = "127.0.0.1"
STARTUP = 4  # the first message of a PostgreSQL client has a length, and no type before it


class Strike(Enum):
    CUT = auto()  # both connections are closed
    SILENCE = auto()  # both stay open, and nothing passes any more


# Takes whole messages from the front of a buffer. The flag is whether this is the start of a client's half.
Framing = Callable[[bytearray, bool], Iterator[bytes]]


def postgres_messages(buffer: bytearray, beginning: bool) -> Iterator[bytes]:
    prefix = 0 if beginning else 1
    while len(buffer) >= prefix + STARTUP:
        end = prefix + int.from_bytes(buffer[prefix : prefix + STARTUP], "big")
        if len(buffer) < end:
            return
        message = bytes(buffer[:end])
        del buffer[:end]
        prefix = 1
        yield message


def whatever_came(buffer: bytearray, _: bool) -> Iterator[bytes]:
    """Redis: a client's command, or a reply, as it was sent; they are short enough to arrive in one piece."""
    if buffer:
        message = bytes(buffer)
        buffer.clear()
        yield message


class Proxy:
    """Passes messages on, and counts them, from both sides together, in the order in which they pass."""

    def __init__(self, port: int, framing: Framing) -> None:
        self._upstream = (LOOPBACK, port)
        self._framing = framing
        self._listener = socket.create_server((LOOPBACK, 0))
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._silenced: set[socket.socket] = set()
        self._strike_at: int | None = None
        self._strike = Strike.CUT
        self.passed: list[bytes] = []
        self.struck: bytes | None = None
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # shutdown wakes the accept that close would leave waiting
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut_all()
        for thread in self._threads:
            thread.join(10)

    def strike_before(self, number: int | None, strike: Strike = Strike.CUT) -> None:
        """From now on count anew, and strike before the message of that number, from 1, passes; once."""
        with self._lock:
            self.passed, self.struck = [], None
            self._strike_at, self._strike = number, strike

    def cut_all(self) -> None:
        """Close every connection there is."""
        with self._lock:
            for one in self._open:
                _close(one)
            self._open.clear()
            self._silenced.clear()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(self._upstream)
            pair = (client, server)
            with self._lock:
                self._open |= set(pair)
            for one in pair:
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for source, target, from_client in ((client, server, True), (server, client, False)):
                thread = threading.Thread(target=self._pump, args=(source, target, from_client), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _pump(self, source: socket.socket, target: socket.socket, beginning: bool) -> None:
        buffer = bytearray()
        try:
            while received := source.recv(65_536):
                buffer += received
                for message in self._framing(buffer, beginning):
                    beginning = False
                    if self._let_pass(message, source, target):
                        target.sendall(message)
        except OSError:
            pass
        finally:
            if source not in self._silenced:
                _close(source)
                _close(target)

    def _let_pass(self, message: bytes, source: socket.socket, target: socket.socket) -> bool:
        with self._lock:
            if source in self._silenced:
                return False
            self.passed.append(message)
            if len(self.passed) != self._strike_at:
                return True
            self._strike_at, self.struck = None, message
            if self._strike is Strike.SILENCE:
                self._silenced |= {source, target}
                return False
        _close(source)
        _close(target)
        return False


def _close(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    with suppress(OSError):
        one.close()


@contextmanager
def proxy_to(port: int, framing: Framing) -> Iterator[Proxy]:
    with Proxy(port, framing) as proxy:
        yield proxy
