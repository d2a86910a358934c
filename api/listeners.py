"""Who listens for notifications in this process, and when each should look.

The rows are the truth: once a second one query asks, for all listeners together, who has news. A message of Redis
only makes it ask sooner, so that nothing is lost while Redis is down. What was told already each listener knows by
its own cursor; being woken for nothing costs it one query.
"""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from time import monotonic
from urllib.parse import urlsplit

import anyio.to_thread
from redis.asyncio import Redis

from api.database import LISTENER_CONNECTIONS, Database
from domain.notify import owners_with_news
from tasks.messages import NEWS_CHANNEL

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
SHORTEST_PAUSE_SECONDS = 0.05  # between two looks, however many hints come
LONGEST_PAUSE_SECONDS = 5.0  # between tries while the database or Redis is away
MOST_OF_PROCESS = 1_000
MOST_OF_OWNER = 20
"""Connections: one user's forgotten tabs must not take the places of all."""


class Crowded(Exception):
    """No more listeners: of this owner, or at all."""


class Listeners:
    """The listeners of one process; used by its event loop alone."""

    def __init__(self, database: Database, redis_url: str) -> None:
        self._database = database
        self._redis_url = redis_url
        self._events: dict[str, list[asyncio.Event]] = {}
        self._joined: set[str] = set()
        self._look = asyncio.Event()
        self._watermark: int | None = None
        self.threads = anyio.CapacityLimiter(LISTENER_CONNECTIONS)

    @property
    def count(self) -> int:
        """How many listen now."""
        return sum(len(events) for events in self._events.values())

    @contextmanager
    def listening(self, owner_id: str) -> Iterator[asyncio.Event]:
        """Listen for an owner: the event is set whenever there may be something new. Look once at the beginning.

        Raises:
            Crowded: too many listen already.
        """
        if self.count >= MOST_OF_PROCESS or len(self._events.get(owner_id, ())) >= MOST_OF_OWNER:
            raise Crowded
        event = asyncio.Event()
        self._events.setdefault(owner_id, []).append(event)
        self._joined.add(owner_id)
        self._look.set()
        try:
            yield event
        finally:
            self._events[owner_id].remove(event)
            if not self._events[owner_id]:
                del self._events[owner_id]

    async def run(self) -> None:
        """Wake listeners until cancelled."""
        await asyncio.gather(self._ask_the_database(), self._hear_redis())

    async def _ask_the_database(self) -> None:
        pause = LOOK_SECONDS
        while True:
            try:
                await asyncio.wait_for(self._look.wait(), pause if self._events else None)
            except TimeoutError:
                pass
            else:
                await asyncio.sleep(SHORTEST_PAUSE_SECONDS)
            self._look.clear()
            if not self._events:
                continue
            try:
                await self._wake_those_with_news()
                pause = LOOK_SECONDS
            except Exception as error:  # noqa: BLE001 - a database that is away, or anything: listeners stay
                log.warning("listeners could not be served: %s", type(error).__name__)
                pause = min(LONGEST_PAUSE_SECONDS, pause * 2)
                await asyncio.sleep(pause)

    async def _wake_those_with_news(self) -> None:
        self._joined = set()
        asked = partial(owners_with_news, owner_ids=list(self._events), watermark=self._watermark or 0)
        owners, watermark = await anyio.to_thread.run_sync(self._database.run, asked, limiter=self.threads)
        self._watermark = watermark
        # Who came while the question was out was not asked for, and the watermark is past what he has not seen.
        for owner_id in owners | self._joined:
            for event in self._events.get(owner_id, ()):
                event.set()

    async def _hear_redis(self) -> None:
        if urlsplit(self._redis_url).scheme == "sentinel":
            return  # its address would have to be asked for; the look each second serves too
        pause = 1.0
        while True:
            began = monotonic()
            try:
                async with (
                    Redis.from_url(self._redis_url, socket_connect_timeout=3, health_check_interval=10) as redis,
                    redis.pubsub(ignore_subscribe_messages=True) as subscription,
                ):
                    await subscription.subscribe(NEWS_CHANNEL)
                    while True:
                        if await subscription.get_message(timeout=30) is not None:
                            self._look.set()
            except Exception as error:  # noqa: BLE001 - whatever is wrong with Redis, the rows are still there
                log.warning("Redis sends no hints of news now: %s", type(error).__name__)
                pause = 1.0 if monotonic() - began > LONGEST_PAUSE_SECONDS else min(LONGEST_PAUSE_SECONDS, pause * 2)
                await asyncio.sleep(pause)
