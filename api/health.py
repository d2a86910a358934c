"""For supervisors and monitors: whether this process lives, whether it can serve, and its figures."""

import asyncio
from typing import Literal

import anyio.to_thread
from fastapi import APIRouter, Request, Response
from redis.asyncio import Redis

from api.metrics import exposition
from api.openapi import example
from api.runtime import Runtime
from api.shapes import Shape, answer
from domain.schema import SCHEMA_REVISION, schema_revision

router = APIRouter(tags=["operation"])

PATIENCE_SECONDS = 3.0


class Alive(Shape):
    status: Literal["ok"] = "ok"


class Ready(Shape):
    """``ok``, or what is wrong in a few words."""

    database: str
    migrations: str
    broker: str

    @property
    def ready(self) -> bool:
        return {self.database, self.migrations, self.broker} == {"ok"}


@router.get("/healthz", response_model=Alive, responses={200: example({"status": "ok"})})
async def alive() -> Response:
    """Whether the process answers. It asks nobody: a database that is away is no reason to restart it."""
    return answer(Alive())


@router.get(
    "/readyz",
    response_model=Ready,
    responses={
        200: example({"database": "ok", "migrations": "ok", "broker": "ok"}, "Ready"),
        503: example({"database": "away", "migrations": "unknown", "broker": "ok"}, "Not ready now") | {"model": Ready},
    },
)
async def ready(request: Request) -> Response:
    """Whether requests can be served: database, migrations and broker."""
    runtime = Runtime.of(request)
    database, broker = await asyncio.gather(state_of_database(runtime), state_of_broker(runtime))
    shape = Ready(database=database[0], migrations=database[1], broker=broker)
    return answer(shape, 200 if shape.ready else 503, {} if shape.ready else {"Retry-After": "2"})


async def state_of_database(runtime: Runtime) -> tuple[str, str]:
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            revision = await anyio.to_thread.run_sync(
                runtime.database.run, schema_revision, abandon_on_cancel=True, limiter=runtime.checks
            )
    except Exception:  # noqa: BLE001 - whatever it is, the database cannot be used
        return "away", "unknown"
    if revision == SCHEMA_REVISION:
        return "ok", "ok"
    return "ok", f"at {revision}, this program needs {SCHEMA_REVISION}: alembic upgrade head"


async def state_of_broker(runtime: Runtime) -> str:
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            async with Redis.from_url(runtime.settings.redis_url.get_secret_value()) as redis:
                await redis.ping()
    except Exception:  # noqa: BLE001 - whatever it is, the broker cannot be used
        return "away"
    return "ok"


@router.get(
    "/metrics",
    response_class=Response,
    responses={
        200: {
            "description": "Prometheus' text format",
            "content": {"text/plain": {"example": 'holdfast_jobs{status="PENDING",stage="PARSING"} 3.0\n'}},
        }
    },
)
async def metrics(request: Request) -> Response:
    """Jobs by status and stage, attempts by outcome, the oldest due job's age, stage times; and this process's own."""
    runtime = Runtime.of(request)
    text = await anyio.to_thread.run_sync(exposition, runtime.metrics, limiter=runtime.checks)
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")
