"""The application: its calls, its limits and its errors, put together."""

from importlib.metadata import PackageNotFoundError, version

from fastapi import FastAPI

from api import attempts, documents, health, jobs, limits, notifications, openapi, outputs, problems, questions, workers
from api.runtime import running

TAGS = [
    {"name": "documents", "description": "A user's documents. Another user's are 404."},
    {"name": "questions", "description": "Search, chat, and what is in process or failed."},
    {
        "name": "notifications",
        "description": "Also `WS /notifications?after=CURSOR` with `Sec-WebSocket-Protocol: bearer, <jwt>`: first what "
        "was missed, then each notification as it comes, as one JSON message.",
    },
    {"name": "workers", "description": "For workers in any language, and for operators; with the admin token."},
    {"name": "operation", "description": "For supervisors and monitors; open."},
]


def make_app() -> FastAPI:
    """A new application. Reads no setting before it starts."""
    app = FastAPI(title="Holdfast", version=own_version(), lifespan=running, openapi_tags=TAGS, redoc_url=None)
    for room in (documents, questions, notifications, workers, attempts, outputs, jobs, health):
        app.include_router(room.router)
    problems.install(app)
    openapi.install(app)
    app.add_middleware(limits.Limits)
    return app


def own_version() -> str:
    try:
        return version("holdfast")
    except PackageNotFoundError:
        return "0"
