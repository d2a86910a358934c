"""Plans what goes wrong from a seed, plays it on live workers, and measures how soon each harm is overcome."""

import random
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy.exc import DBAPIError

from tests.chaos.acts import ACTS, Act, Scene
from tests.chaos.documents import make
from tests.end_to_end.conftest import System

RECOVERY_LIMIT = 120.0  # s; a document that is in work at a harm and not at its end by then is stuck


class Stuck(AssertionError):
    """A harm was mended, and what it met did not go on."""


@dataclass(frozen=True)
class Planned:
    """One act of a burst. ``seed``: what the act draws for itself."""

    act: Act
    seconds: float
    seed: int


@dataclass(frozen=True)
class Played:
    """One act as it went. Times are Unix times.

    ``resumed_at``: when the first document after it was indexed. ``over_at``: when the last of the documents that
    were in work at its beginning, ``met`` of them, had come to an end, all retries included.
    """

    act: Act
    began_at: float
    mended_at: float
    resumed_at: float
    over_at: float
    met: int


def plan(seed: int, with_clock: bool, together: Sequence[int]) -> Iterator[list[Planned]]:
    """Bursts for ever. Every act occurs once before any occurs again; the acts of a burst touch different parts.

    Args:
        together: how many acts a burst may have; drawn from.
    """
    chance = random.Random(seed)
    deck: list[Act] = []
    while True:
        count, burst = chance.choice(together), list[Planned]()
        for _ in range(count):
            if not deck:
                deck = [act for act in ACTS.values() if with_clock or act.touches != "clock"]
                chance.shuffle(deck)
            touched = {planned.act.touches for planned in burst}
            act = next((act for act in deck if act.touches not in touched), None)
            if act is None:
                break
            deck.remove(act)
            burst.append(Planned(act, chance.uniform(act.shortest, act.longest), chance.getrandbits(32)))
        yield burst


@dataclass
class Feeder:
    """Uploads documents so that there is always something in work; new versions among them."""

    system: System
    chance: random.Random
    backlog: int
    uploads: dict[str, str | None] = field(default_factory=dict)  # by name: why it cannot be indexed
    versions: dict[str, int] = field(default_factory=dict)
    _ended: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="feeder")
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        number = 0
        while not self._ended.wait(0.25):
            waiting = asked(
                self.system, "SELECT count(*) FROM embedding_jobs WHERE status IN ('PENDING', 'PROCESSING')"
            )
            if waiting is None or waiting[0][0] >= self.backlog:
                continue
            version = 1
            if number > 20 and self.chance.random() < 0.15:
                name, version = self.chance.choice(list(self.versions.items()))
                made = make(int(name.split(".")[0]), version + 1, self.chance)
                version += 1
            else:
                number += 1
                made = make(number, 1, self.chance)
            retries = 3 if self.chance.random() < 0.1 else 20
            while not self._upload(made.name, made.content, f"{made.name}/{version}", retries):
                if self._ended.wait(0.25):
                    return
            self.uploads[made.name] = made.reason
            if made.mark:
                self.versions[made.name] = version

    def _upload(self, name: str, content: bytes, request_id: str, retries: int) -> bool:
        """Accepted once committed; asked again with the same id when the answer did not come."""
        try:
            self.system.upload(name, content, request_id=request_id, max_retry_count=retries)
        except DBAPIError:
            return False
        return True


@dataclass
class Director:
    """Plays bursts until its time is over."""

    scene: Scene
    played: list[Played] = field(default_factory=list)

    def play(self, bursts: Iterator[list[Planned]], seconds: float) -> None:
        """Play until ``seconds`` have passed, and the last burst to its end.

        Raises:
            Stuck: something did not go on.
        """
        until = time.monotonic() + seconds
        with ThreadPoolExecutor(8) as stage:
            while time.monotonic() < until:
                self.played += list(stage.map(self._play, next(bursts)))

    def _play(self, planned: Planned) -> Played:
        system = self.scene.system
        began_at = time.time()
        jobs = [job for (job,) in asked(system, "SELECT id FROM embedding_jobs WHERE status = 'PROCESSING'") or []]
        with planned.act.play(self.scene, random.Random(planned.seed), planned.seconds):
            pass
        mended_at = time.time()
        resumed_at = self._wait(
            planned,
            "no document was indexed",
            "SELECT min(extract(epoch FROM indexed_at))::float FROM document_versions "
            "WHERE indexed_at > to_timestamp(:mended_at)",
            mended_at=mended_at,
        )
        over_at = (
            self._wait(
                planned,
                f"jobs {jobs} are not at their end",
                "SELECT max(extract(epoch FROM updated_at))::float FROM embedding_jobs WHERE id = ANY(:jobs) "
                "HAVING bool_and(status NOT IN ('PENDING', 'PROCESSING'))",
                jobs=jobs,
            )
            if jobs
            else resumed_at
        )
        return Played(planned.act, began_at, mended_at, resumed_at, over_at, len(jobs))

    def _wait(self, planned: Planned, what: str, statement: str, **parameters: Any) -> float:
        deadline = time.monotonic() + RECOVERY_LIMIT
        while time.monotonic() < deadline:
            rows = asked(self.scene.system, statement, **parameters)
            if rows and rows[0][0] is not None:
                return float(rows[0][0])
            time.sleep(0.25)
        raise Stuck(f"{RECOVERY_LIMIT:.0f} s after '{planned.act.name}': {what}")


def asked(system: System, statement: str, **parameters: Any) -> list[tuple[Any, ...]] | None:
    """The rows; None while the database is away."""
    try:
        return system.rows(statement, **parameters)
    except DBAPIError:
        return None
