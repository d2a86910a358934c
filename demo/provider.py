"""An embedding provider on this machine that speaks OpenAI's protocol, and has an outage when asked to."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from stages.embed import open_embedder


class Provider:
    """Serves the offline model at ``POST /v1/embeddings``; the first ``outages`` requests are answered 503."""

    def __init__(self, outages: int) -> None:
        self.outages_left = outages
        self.embedder = open_embedder("local")
        self.lock = threading.Lock()  # the model is one, the requests are several
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self.handler())
        self.thread = threading.Thread(target=self.server.serve_forever, name="provider", daemon=True)

    @property
    def base_url(self) -> str:
        """What to set as EMBEDDING_BASE_URL."""
        return f"http://127.0.0.1:{self.server.server_port}/v1"

    def start(self) -> None:
        """Load the model, about two seconds, and serve."""
        self.embedder.warm()
        self.thread.start()

    def stop(self) -> None:
        """Serve no longer."""
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def answer(self, request: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """The status and body of one request."""
        with self.lock:
            if self.outages_left > 0:
                self.outages_left -= 1
                return 503, {"error": {"message": "the provider is down for maintenance", "type": "server_error"}}
            texts = [request["input"]] if isinstance(request["input"], str) else request["input"]
            vectors = self.embedder.embed_passages(texts)
        data = [
            {"object": "embedding", "index": place, "embedding": vector.tolist()}
            for place, vector in enumerate(vectors)
        ]
        return 200, {"object": "list", "model": request["model"], "data": data, "usage": {"total_tokens": 0}}

    def handler(provider) -> type[BaseHTTPRequestHandler]:  # noqa: N805 (``self`` is the request's, below)
        """A request handler class of this provider."""

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status, answer = provider.answer(json.loads(body))
                encoded = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(encoded)))
                self.end_headers()
                self.wfile.write(encoded)

            def log_message(self, format: str, *args: object) -> None:
                """Nothing: the demo's own lines are what people read."""

        return Handler
