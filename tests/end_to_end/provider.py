"""A provider of embeddings that speaks OpenAI's protocol, counts what it is asked, and fails when told to."""

import hashlib
import json
import threading
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from struct import pack
from typing import Any

DIMENSIONS = 16


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
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True

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

    def _answer(self, request: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        self.answering.wait()
        texts = [request["input"]] if isinstance(request["input"], str) else request["input"]
        with self._lock:
            self.requests += 1
            if self.down:
                self.refused += 1
                return 503, {"error": {"message": "down for maintenance", "type": "server_error"}}
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
        return 200, {"object": "list", "model": request["model"], "data": data, "usage": usage}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        provider = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status, answer = provider._answer(json.loads(body))
                encoded = json.dumps(answer).encode()
                try:
                    self.send_response(status)
                    self.send_header("Content-Type", "application/json")
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
