"""Two sessions, let go one statement at a time, in every order in which they can meet.

A session stops before each of its statements, and before its commit, until it is let go. One that was let go and then
waits for a lock of the other is not let go again before it has the lock; PostgreSQL says so itself.
"""

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Engine, event, text
from sqlalchemy.exc import DBAPIError

from domain.errors import DomainError

LONGEST_STEP = 30.0  # s
SOON = 0.004  # s; a statement that has not come back by then may wait for a lock

Call = Callable[[Connection], Any]


class Session:
    """One transaction in a thread of its own. Its result is what the call returned, or the error it ended with."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.pid = connection.execute(text("SELECT pg_backend_pid()")).scalar_one()
        connection.rollback()
        self._go = threading.Semaphore(0)
        self._stops: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._free = True
        self.done = self.waiting = False
        self.result: Any = None
        event.listen(connection, "before_cursor_execute", self._stop)
        event.listen(connection.engine, "commit", self._stop_at_commit)

    def close(self) -> None:
        event.remove(self.connection.engine, "commit", self._stop_at_commit)
        self.connection.close()

    def _stop_at_commit(self, connection: Connection) -> None:
        if connection is self.connection:
            self._stop()

    def _stop(self, *_: Any) -> None:
        if not self._free:
            self._stops.put(False)
            self._go.acquire()

    def start(self, call: Call) -> None:
        self.done = self.waiting = self._free = False
        threading.Thread(target=self._run, args=(call,), daemon=True).start()
        self.done = self._stops.get(timeout=LONGEST_STEP)

    def _run(self, call: Call) -> None:
        try:
            self.result = call(self.connection)
            self.connection.commit()
        except (DomainError, DBAPIError) as error:
            self.result = error
        self._free = True
        self.connection.rollback()
        self._stops.put(True)

    def let_go(self) -> None:
        self.waiting = True
        self._go.release()

    def stopped_again(self, seconds: float) -> bool:
        try:
            self.done = self._stops.get(timeout=seconds)
        except queue.Empty:
            return False
        self.waiting = False
        return True


@dataclass(frozen=True)
class Run:
    """One order: who was let go at each step, who else could have been, and how both ended."""

    steps: tuple[int, ...]
    could: tuple[frozenset[int], ...]
    results: tuple[Any, ...]


class Director:
    """Lets two sessions go in a given order, and asks a third connection who waits for whom."""

    def __init__(self, engine: Engine) -> None:
        self.sessions = (Session(engine.connect()), Session(engine.connect()))
        self._watcher = engine.connect().execution_options(isolation_level="AUTOCOMMIT")

    def close(self) -> None:
        for session in self.sessions:
            session.close()
        self._watcher.close()

    def run(self, calls: Sequence[Call], order: Sequence[int]) -> Run:
        """Follow ``order``; after its end go on with whoever was last, as long as that is possible."""
        taking_part = self.sessions[: len(calls)]
        for session, call in zip(taking_part, calls, strict=True):
            session.start(call)
        steps: list[int] = []
        could: list[frozenset[int]] = []
        while not all(session.done for session in taking_part):
            ready = frozenset(n for n, one in enumerate(taking_part) if not (one.done or one.waiting))
            if not ready:  # both wait for each other: PostgreSQL ends one of them
                self._settle(taking_part, until_any_stops=True)
                continue
            turn = order[len(steps)] if len(steps) < len(order) else (steps[-1] if steps else 0)
            if turn not in ready:
                turn = min(ready)
            steps.append(turn)
            could.append(ready)
            taking_part[turn].let_go()
            self._settle(taking_part)
        return Run(tuple(steps), tuple(could), tuple(session.result for session in taking_part))

    def _settle(self, sessions: Sequence[Session], until_any_stops: bool = False) -> None:
        """Wait until each session has come to its next stop or waits for the other."""
        deadline = time.monotonic() + LONGEST_STEP
        for session in sessions:
            while session.waiting and not session.stopped_again(SOON):
                if not until_any_stops and self._waits_for(session, sessions):
                    break
                if until_any_stops and not all(one.waiting for one in sessions if not one.done):
                    break
                assert time.monotonic() < deadline, "a statement neither ended nor waits for the other session"

    def _waits_for(self, session: Session, sessions: Sequence[Session]) -> bool:
        others = [one.pid for one in sessions if one is not session]
        blocked = text("SELECT pg_blocking_pids(:pid) && CAST(:others AS integer[])")
        return bool(self._watcher.execute(blocked, {"pid": session.pid, "others": others}).scalar_one())


def orders(run: Callable[[Sequence[int]], Run], most_switches: int) -> Iterator[Run]:
    """Every order with at most so many switches away from a session that could have gone on, depth first.

    Two sessions that never get into each other's way would have more orders than can be run, all of them alike; what
    goes wrong between two sessions goes wrong with few switches.
    """
    waiting: list[tuple[int, ...]] = [(1,), (0,)]
    while waiting:
        prefix = waiting.pop()
        ran = run(prefix)
        yield ran
        for place in range(len(prefix), len(ran.steps)):
            for other in ran.could[place] - {ran.steps[place]}:
                branch = (*ran.steps[:place], other)
                if switches(branch, ran.could) <= most_switches:
                    waiting.append(branch)


def switches(steps: Sequence[int], could: Sequence[frozenset[int]]) -> int:
    return sum(
        1 for place in range(1, len(steps)) if steps[place] != steps[place - 1] and steps[place - 1] in could[place]
    )
