"""The outermost layer: what any request may cost, what is counted of it, and the last answer when all else failed."""

import asyncio
import contextlib
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.metrics import ANSWERED, IN_PROGRESS, SECONDS
from api.problems import Problem, problem_of
from settings import Settings

UPLOAD_PATH = "/documents"  # limits its own body, which is not held in memory

HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
]
METHODS = ("GET", "POST", "DELETE", "HEAD", "OPTIONS", "PUT", "PATCH")
# Asked by supervisors and monitors, above all while there is too much to do.
ALWAYS_ANSWERED = ("/healthz", "/readyz", "/metrics")

DRAIN_BYTES = 8 * 1024 * 1024
DRAIN_SECONDS = 2.0


class Limits:
    """Refuses bodies that are too long and requests that are too many, and lets no exception reach the server."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._requests = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        values: Settings = scope["app"].state.runtime.settings
        began = time.monotonic()
        body = Body(receive, None if scope["path"].rstrip("/") == UPLOAD_PATH else values.max_request_bytes)
        answer = Answer(send, body)
        self._requests += 1
        IN_PROGRESS.set(self._requests)
        try:
            if self._requests > values.api_max_requests and scope["path"] not in ALWAYS_ANSWERED:
                raise Problem("TOO_BUSY", "too many requests at once; repeat this one later")
            body.check_announced(scope)
            await self._app(scope, body.receive, answer.send)
        except Exception as error:  # noqa: BLE001 - the last place where a caller can be told anything
            problem = problem_of(error)
            if not answer.started:  # else the connection ends in the middle of the answer, which is what happened
                await problem.response()(scope, receive, answer.send)
        finally:
            self._requests -= 1
            IN_PROGRESS.set(self._requests)
            route = getattr(scope.get("route"), "path", "unknown")
            method = scope["method"] if scope["method"] in METHODS else "other"  # what a caller invents is no label
            ANSWERED.labels(method, route, answer.status).inc()
            SECONDS.labels(route).observe(time.monotonic() - began)


class Body:
    """The body of a request as it comes, counted."""

    def __init__(self, receive: Receive, most_bytes: int | None) -> None:
        self._receive = receive
        self._most_bytes = most_bytes
        self._received = 0
        self.ended = False

    def check_announced(self, scope: Scope) -> None:
        """Refuse a body by its announced length.

        Raises:
            Problem: TOO_LARGE.
        """
        for name, value in scope["headers"]:
            if name == b"content-length" and value.isdigit():
                self._require(int(value[:20]))

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self._received += len(message.get("body", b""))
            self.ended = not message.get("more_body", False)
            self._require(self._received)
        else:
            self.ended = True
        return message

    async def drain(self) -> None:
        """Take some of what is still on its way: who is still sending often reads no answer before he has sent all."""
        left = DRAIN_BYTES
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_SECONDS):
                while left > 0 and not self.ended:
                    message = await self._receive()
                    left -= len(message.get("body", b""))
                    self.ended = not message.get("more_body", False)

    def _require(self, length: int) -> None:
        if self._most_bytes is not None and length > self._most_bytes:
            raise Problem("TOO_LARGE", f"the body is longer than {self._most_bytes:,} bytes (MAX_REQUEST_BYTES)")


class Answer:
    """The answer on its way out, with the headers that every answer has."""

    def __init__(self, send: Send, body: Body) -> None:
        self._send = send
        self._body = body
        self.started = False
        self.status = 500

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            self.status = message["status"]
            headers = list(message["headers"])
            present = {name.lower() for name, _ in headers}
            headers += [(name, value) for name, value in HEADERS if name not in present]
            if self.status >= 400 and not self._body.ended:
                await self._body.drain()
                if not self._body.ended:
                    headers.append((b"connection", b"close"))
            message["headers"] = headers
        await self._send(message)
