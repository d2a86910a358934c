"""What an API process holds while it runs."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Self

import anyio
import anyio.to_thread
from fastapi import FastAPI
from starlette.requests import HTTPConnection

from api.database import CHECK_CONNECTIONS, Database
from api.embedders import Embedders
from api.hints import Hints
from api.listeners import Listeners
from api.metrics import DatabaseMetrics
from settings import Settings, SettingsInvalid, settings
from stages.store import Store, open_store

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Runtime:
    """Settings, connections and threads of one process; endpoints find it on their request."""

    settings: Settings
    database: Database
    store: Store
    embedders: Embedders
    hints: Hints
    listeners: Listeners
    metrics: DatabaseMetrics
    uploads: anyio.CapacityLimiter
    checks: anyio.CapacityLimiter

    @classmethod
    def of(cls, connection: HTTPConnection) -> Self:
        runtime: Self = connection.app.state.runtime
        return runtime


@asynccontextmanager
async def running(app: FastAPI) -> AsyncIterator[None]:
    """Open what the endpoints need, and close it when the server stops. Waits for no server: they may come later."""
    try:
        values = settings()
    except SettingsInvalid as error:
        # A SystemExit would end the server without a word.
        raise RuntimeError(str(error)) from None
    database = Database(values)
    hints = Hints()
    # As many requests work at once as have a connection, so that none waits for one while it holds a thread.
    anyio.to_thread.current_default_thread_limiter().total_tokens = values.api_database_connections
    listeners = Listeners(database, values.redis_url.get_secret_value())
    app.state.runtime = Runtime(
        settings=values,
        database=database,
        store=open_store(values.storage_url),
        embedders=Embedders(values, database),
        hints=hints,
        listeners=listeners,
        metrics=DatabaseMetrics(database),
        uploads=anyio.CapacityLimiter(values.api_max_uploads),
        checks=anyio.CapacityLimiter(CHECK_CONNECTIONS),
    )
    hints.start()
    listening = asyncio.create_task(listeners.run())
    try:
        yield
    finally:
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        hints.close()
        database.close()
