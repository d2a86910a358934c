"""Celery's consumer and pool, where one message or one dead child would end the worker's main process.

Named in celeryconfig.py as ``worker_consumer`` and ``worker_pool``.
"""

import logging
import os
from collections.abc import Callable
from typing import Any

from celery.concurrency import asynpool, prefork
from celery.worker import consumer

log = logging.getLogger(__name__)


_Consumer: Any = consumer.Consumer  # the stubs know less of both
_Pool: Any = asynpool.AsynPool


class Consumer(_Consumer):  # type: ignore[misc]
    """Discards a message that cannot be understood, whatever is wrong with it.

    Celery discards what it foresaw. Anything else ends its event loop, and the message goes back to its queue: it
    would end every worker, one after the other, for ever. A stage whose message is discarded is claimed again.
    """

    def create_task_handler(self, *arguments: Any, **options: Any) -> Callable[[Any], None]:
        handle = super().create_task_handler(*arguments, **options)

        def handle_or_discard(message: Any) -> None:
            try:
                handle(message)
            except self.connection_errors:
                raise
            except Exception as error:  # noqa: BLE001 - nothing that is sent may end this loop
                log.error("a message was discarded: %s", type(error).__name__)  # its text may be the sender's
                message.reject_log_error(log, self.connection_errors)

        return handle_or_discard


class Pool(_Pool):  # type: ignore[misc]
    """Watches every child anew after the broker came back, also one whose end was seen and not yet reaped.

    Celery forgets the descriptor of such a child and then fails to register None, which ends the main process.
    """

    def _track_child_process(self, proc: Any, hub: Any) -> None:
        if getattr(proc, "_sentinel_poll", -1) is None:
            try:
                proc._sentinel_poll = os.dup(proc._popen.sentinel)
            except (OSError, AttributeError, TypeError):
                return  # reaped meanwhile: the pool replaces it at its next look
        super()._track_child_process(proc, hub)


class TaskPool(prefork.TaskPool):
    Pool = Pool


__all__ = ["Consumer", "Pool", "TaskPool"]
