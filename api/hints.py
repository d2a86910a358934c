"""Messages after a commit: that there is work, and that there is news. Lost ones cost a second, never correctness."""

import logging
import threading
from collections.abc import Callable, Mapping

from tasks.messages import send_claim_hint, send_news_hint

log = logging.getLogger(__name__)

SENDERS: Mapping[str, Callable[[], None]] = {"work": send_claim_hint, "news": send_news_hint}


class Hints:
    """One thread that sends them, so that no request waits for a broker that is away; equal ones become one."""

    def __init__(self) -> None:
        self._wanted: set[str] = set()
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._send, name="hints", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def of_work(self) -> None:
        """Some job is due: ask a worker to claim. Call it after the commit."""
        self._want("work")

    def of_news(self) -> None:
        """Some owner has a new notification: tell the processes that have listeners. Call it after the commit."""
        self._want("news")

    def close(self, seconds: float = 2) -> None:
        """Send what is still wanted, if that does not take long."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join(seconds)

    def _want(self, what: str) -> None:
        with self._changed:
            self._wanted.add(what)
            self._changed.notify()

    def _send(self) -> None:
        while True:
            with self._changed:
                while not self._wanted and not self._closed:
                    self._changed.wait()
                if not self._wanted:
                    return
                wanted, self._wanted = self._wanted, set()
            for what in sorted(wanted):
                try:
                    SENDERS[what]()
                except Exception as error:  # noqa: BLE001 - a hint is worth no thread
                    log.warning("a hint of %s was not sent: %s", what, type(error).__name__)
