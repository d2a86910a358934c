"""A TCP proxy that can turn into a hole: what goes in is swallowed, nothing comes out, and nobody hangs up."""

import select
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

LOOPBACK = "127.0.0.1"


class Hole:
    """Passes bytes on until ``swallow``; ``mend`` lets new connections pass, those of before stay silent."""

    def __init__(self, port: int) -> None:
        self._upstream = (LOOPBACK, port)
        self._listener = socket.create_server((LOOPBACK, 0))
        self.port: int = self._listener.getsockname()[1]
        self._swallowing = False
        self._generation = 0
        self._kept: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def swallow(self, new: bool = True) -> None:
        """Silence every connection there is and, if ``new``, those that come until ``mend``."""
        self._generation += 1
        self._swallowing = new

    def mend(self) -> None:
        self._swallowing = False

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        for one in (self._listener, *self._kept):
            one.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._kept.append(client)
                if not self._swallowing:
                    threading.Thread(target=self._pass, args=(client, self._generation), daemon=True).start()

    def _pass(self, client: socket.socket, generation: int) -> None:
        with suppress(OSError, ValueError):
            server = socket.create_connection(self._upstream)
            self._kept.append(server)
            while True:
                for source in select.select([client, server], [], [])[0]:
                    received = source.recv(65_536)
                    if generation != self._generation:
                        return  # both ends stay open
                    if not received:
                        client.close()
                        server.close()
                        return
                    (server if source is client else client).sendall(received)


@contextmanager
def hole_to(port: int) -> Iterator[Hole]:
    hole = Hole(port)
    try:
        yield hole
    finally:
        hole.close()
