"""A provider of embeddings that speaks OpenAI's protocol, counts what it is asked, and fails when told to."""

import hashlib
import json
import sys
import threading
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from struct import pack
from typing import Any, NamedTuple

DIMENSIONS = 16


class Answer(NamedTuple):
    """What a request gets; a body that is no dictionary is sent as it is, and is not JSON."""

    status: int
    body: dict[str, Any] | str
    headers: dict[str, str]


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):  # a worker was killed while it was connected
            super().handle_error(request, client_address)


class Provider:
    """Counts each text it embedded; ``down`` makes it answer 503, ``held`` makes it wait before it answers."""

    def __init__(self) -> None:
        self.embedded: Counter[str] = Counter()
        self.requests = 0
        self.refused = 0
        self.down = False
        self.answering = threading.Event()
        self.answering.set()
        self._lock = threading.Lock()
        self._server = Server(("127.0.0.1", 0), self._handler())

    @property
    def environment(self) -> dict[str, str]:
        """The settings by which Holdfast uses this provider."""
        return {
            "EMBEDDING_PROVIDER": "openai",
            "EMBEDDING_MODEL": "counting",
            "EMBEDDING_DIMENSIONS": str(DIMENSIONS),
            "EMBEDDING_BASE_URL": f"http://127.0.0.1:{self._server.server_port}/v1",
            "EMBEDDING_API_KEY": "the-providers-key",
        }

    @contextmanager
    def serving(self) -> Iterator["Provider"]:
        thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield self
        finally:
            self.answering.set()
            self._server.shutdown()
            self._server.server_close()
            thread.join()

    def answer(self, request: dict[str, Any]) -> Answer:
        """What this request gets; called by many threads at once."""
        self.answering.wait()
        texts = [request["input"]] if isinstance(request["input"], str) else request["input"]
        with self._lock:
            self.requests += 1
            if self.down:
                self.refused += 1
                return Answer(503, {"error": {"message": "down for maintenance", "type": "server_error"}}, {})
            self.embedded.update(texts)
        encoded = request.get("encoding_format") == "base64"
        data = [
            {
                "object": "embedding",
                "index": place,
                "embedding": b64encode(pack(f"<{DIMENSIONS}f", *vector(text))).decode() if encoded else vector(text),
            }
            for place, text in enumerate(texts)
        ]
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        return Answer(200, {"object": "list", "model": request["model"], "data": data, "usage": usage}, {})

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        provider = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status, answer, headers = provider.answer(json.loads(body))
                encoded = (answer if isinstance(answer, str) else json.dumps(answer)).encode()
                try:
                    self.send_response(status)
                    for name, value in {"Content-Type": "application/json", **headers}.items():
                        self.send_header(name, value)
                    self.send_header("Content-Length", str(len(encoded)))
                    self.end_headers()
                    self.wfile.write(encoded)
                except ConnectionError:
                    self.close_connection = True  # the worker was killed while it waited

            def log_message(self, format: str, *args: object) -> None:
                pass

        return Handler


def vector(text: str) -> list[float]:
    """The same text has the same vector, never zero."""
    return [float(byte + 1) for byte in hashlib.sha256(text.encode()).digest()[:DIMENSIONS]]
