"""The outermost layer: what any request may cost, what is counted of it, and the last answer when all else failed."""

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


class Limits:
    """Refuses bodies that are too long and requests that are too many, and lets no exception reach the server."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._requests = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.monotonic()
        status = 500
        started = False

        async def counted_send(message: Message) -> None:
            nonlocal status, started
            if message["type"] == "http.response.start":
                started = True
                status = message["status"]
                present = {name.lower() for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *((n, v) for n, v in HEADERS if n not in present)]
            await send(message)

        self._requests += 1
        IN_PROGRESS.set(self._requests)
        try:
            if self._requests > settings_of(scope).api_max_requests and scope["path"] not in ALWAYS_ANSWERED:
                raise Problem("TOO_BUSY", "too many requests at once; repeat this one later")
            await self._app(scope, self._limited(scope, receive), counted_send)
        except Exception as error:  # noqa: BLE001 - the last place where a caller can be told anything
            problem = problem_of(error)
            if started:
                return  # the connection ends in the middle of the answer, which is what happened
            await problem.response()(scope, receive, counted_send)
        finally:
            self._requests -= 1
            IN_PROGRESS.set(self._requests)
            route = getattr(scope.get("route"), "path", "unknown")
            method = scope["method"] if scope["method"] in METHODS else "other"  # what a caller invents is no label
            ANSWERED.labels(method, route, status).inc()
            SECONDS.labels(route).observe(time.monotonic() - began)

    def _limited(self, scope: Scope, receive: Receive) -> Receive:
        if scope["path"].rstrip("/") == UPLOAD_PATH:
            return receive
        most = settings_of(scope).max_request_bytes
        too_large = Problem("TOO_LARGE", f"the body is longer than {most:,} bytes (MAX_REQUEST_BYTES)")
        for name, value in scope["headers"]:
            if name == b"content-length" and value.isdigit() and int(value[:20]) > most:
                raise too_large
        received = 0

        async def limited_receive() -> Message:
            nonlocal received
            message = await receive()
            if message["type"] == "http.request":
                received += len(message.get("body", b""))
                if received > most:
                    raise too_large
            return message

        return limited_receive


def settings_of(scope: Scope) -> Settings:
    values: Settings = scope["app"].state.runtime.settings
    return values
