"""A child whose end was seen but not yet reaped, when the broker comes back."""

import os
from types import SimpleNamespace
from typing import Any

from kombu.utils.imports import symbol_by_name

from tasks.app import app
from tasks.hardened import Consumer, Pool, TaskPool


class Hub:
    def __init__(self) -> None:
        self.watched: list[int] = []

    def add_reader(self, descriptor: int, *_: Any) -> None:
        self.watched.append(descriptor)


def test_a_child_whose_end_was_seen_is_watched_anew_when_the_broker_comes_back() -> None:
    reading, writing = os.pipe()
    pool: Any = object.__new__(Pool)
    child, hub = SimpleNamespace(_sentinel_poll=None, _popen=SimpleNamespace(sentinel=reading)), Hub()
    pool._track_child_process(child, hub)
    assert hub.watched == [child._sentinel_poll]
    for descriptor in (reading, writing, child._sentinel_poll):
        os.close(descriptor)
    child._sentinel_poll = None
    pool._track_child_process(child, hub)  # reaped: nothing to watch, and no reason to end
    assert len(hub.watched) == 1


def test_a_worker_uses_the_hardened_consumer_and_pool(configured: object) -> None:
    worker: Any = app.WorkController()
    assert worker.pool_cls is TaskPool
    assert symbol_by_name(worker.consumer_cls or app.conf.worker_consumer) is Consumer
