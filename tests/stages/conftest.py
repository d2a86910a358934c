"""An S3 server, and servers that misbehave on purpose."""

import http.client
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from domain.failures import Failure, FailureType, StageFailed


@contextmanager
def refused(type_: FailureType, reason: str | None = None) -> Iterator[list[Failure]]:
    """Expect a stage to fail in this way; the failure is appended to the list that it gives."""
    caught: list[Failure] = []
    with pytest.raises(StageFailed) as raised:
        yield caught
    failure = raised.value.failure
    caught.append(failure)
    assert (failure.type, failure.reason) == (type_, reason), failure.message


@contextmanager
def invalid(reason: str) -> Iterator[list[Failure]]:
    """Expect DOCUMENT_CONTENT_INVALID for this reason."""
    with refused(FailureType.DOCUMENT_CONTENT_INVALID, reason) as caught:
        yield caught


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@pytest.fixture(scope="session")
def s3_url() -> Iterator[str]:
    """The address of a running S3 server (moto) that has the bucket ``documents``."""
    port = free_port()
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 60
        while not made_bucket(port):
            assert time.monotonic() < deadline, "the S3 server did not start"
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(30)


def made_bucket(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("PUT", "/documents")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


class Answer:
    """What a server of the tests says next: a status, a body, headers, and how long it waits first."""

    def __init__(
        self,
        status: int = 200,
        body: bytes = b"",
        headers: dict[str, str] | None = None,
        wait_seconds: float = 0.0,
        announced_length: int | None = None,
    ) -> None:
        self.status = status
        self.body = body
        self.headers = headers or {}
        self.wait_seconds = wait_seconds
        self.announced_length = len(body) if announced_length is None else announced_length


class Server:
    """An HTTP server on a free port that answers as ``answer`` says and keeps the bodies it was sent."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.authorizations: list[str | None] = []
        self.answer: Callable[[bytes], Answer] = lambda body: Answer()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._respond()

            do_POST = do_HEAD = do_PUT = do_GET  # noqa: N815

            def _respond(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                outer.requests.append(body)
                outer.authorizations.append(self.headers.get("Authorization"))
                answer = outer.answer(body)
                if outer.stopping.wait(answer.wait_seconds):
                    return
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(answer.announced_length))
                self.end_headers()
                self.wfile.write(answer.body)
                self.close_connection = answer.announced_length != len(answer.body)

            def log_message(self, *_: object) -> None: ...

        self.stopping = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self.stopping.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def server() -> Iterator[Server]:
    opened = Server()
    yield opened
    opened.close()
