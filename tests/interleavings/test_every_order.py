"""Two operations that meet, in every order of their statements: as if one had come after the other."""

import os
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations_with_replacement, product

import pytest

from tests.interleavings import operations as do
from tests.interleavings import scenes
from tests.interleavings.operations import ASKED, ENDS, PASSES_OVER, Operation, comparable, rows_left
from tests.interleavings.scenes import Prepare, Stage
from tests.interleavings.schedule import Director, Run, orders
from tests.invariants import violations

pytestmark = pytest.mark.race

MOST_SWITCHES = int(os.environ.get("INTERLEAVINGS_SWITCHES", "1"))
PAIRS = int(os.environ.get("INTERLEAVINGS_PAIRS", "4"))  # chosen at random; 0 is all
SEED = int(os.environ.get("INTERLEAVINGS_SEED", "1"))

RUNNING = (do.claim, do.extend, *ENDS, *ASKED)
ONE_JOB: dict[Prepare, Sequence[Operation]] = {
    scenes.uploaded: (do.claim, *ASKED),
    scenes.claimed: (do.begin, do.release_lost, *RUNNING),
    scenes.parsing: (do.store_text, *RUNNING),
    scenes.chunking: (do.store_chunks, do.release_lost, *RUNNING),
    scenes.embedding: (do.store_vectors, *RUNNING),
    scenes.storing: RUNNING,
    scenes.superseding: RUNNING,
    scenes.expired: RUNNING,
    scenes.expired_for_the_last_time: RUNNING,
    scenes.waiting_for_a_retry: RUNNING,
    scenes.failed: (do.claim, *ENDS, *ASKED),
    scenes.failed_behind_a_searchable_version: (do.claim, *ASKED),
}
TWO_VERSIONS: dict[Prepare, tuple[Sequence[Operation], Sequence[Operation]]] = {
    scenes.two_storing: (ENDS, (*ENDS, do.extend)),
    scenes.two_superseding: (ENDS, ENDS),
    scenes.two_storing_for_the_last_time: ((do.complete, do.fail), (do.complete, do.fail)),
    scenes.one_storing_one_uploaded: (ENDS, (do.claim, *ASKED)),
}


@dataclass(frozen=True)
class Pair:
    """``which``: the claims that the two use."""

    prepare: Prepare
    operations: tuple[Operation, Operation]
    which: tuple[int, int]

    def __str__(self) -> str:
        first, second = (operation.__name__ for operation in self.operations)
        return f"{self.prepare.__name__}-{first}-{second}"


ALL = [
    *(Pair(scene, pair, (0, 0)) for scene, them in ONE_JOB.items() for pair in combinations_with_replacement(them, 2)),
    *(
        Pair(scene, pair, (0, 0 if scene is scenes.one_storing_one_uploaded else 1))
        for scene, them in TWO_VERSIONS.items()
        for pair in product(*them)
    ),
]
# What others got wrong, and what needs the finest steps here.
HARD = {
    "two_superseding-complete-complete",
    "two_storing_for_the_last_time-fail-fail",
    "two_storing_for_the_last_time-complete-fail",
    "expired-claim-complete",
    "expired_for_the_last_time-claim-cancel",
    "failed-retry-enqueue",
    "failed-retry-delete",
    "storing-cancel-enqueue",
    "one_storing_one_uploaded-complete-enqueue_the_same",
    "uploaded-claim-delete",
    "storing-complete-cancel",
    "superseding-fail_for_good-delete",
}


def chosen() -> list[Pair]:
    if not PAIRS:
        return ALL
    some = random.Random(SEED).sample(ALL, PAIRS)  # noqa: S311 - a repeatable choice, no secret
    return [pair for pair in ALL if str(pair) in HARD or pair in some]


@pytest.mark.parametrize("pair", chosen(), ids=str)
def test_two_operations_that_meet_end_as_if_one_had_come_after_the_other(
    stage: Stage, director: Director, pair: Pair
) -> None:
    """In every order: no deadlock, no row that breaks a rule, and the answers and rows of one after the other: so of
    two that exclude each other, exactly one wins. What passes over a locked row may also have done nothing."""
    wrong = list(judge(pair, stage, director))
    assert not wrong, "\n".join(wrong[:20])


def judge(pair: Pair, stage: Stage, director: Director) -> Iterator[str]:
    scene = stage.set(pair.prepare)
    calls = [
        partial(operation, scene=scene, which=which)
        for operation, which in zip(pair.operations, pair.which, strict=True)
    ]
    connection = scene.indexing.connection

    def left() -> object:
        rows = rows_left(connection)
        broken = violations(connection)
        connection.rollback()
        return (rows, *(repr(one) for one in broken))

    def run(order: Sequence[int]) -> Run:
        stage.put_back()
        return director.run(calls, order)

    legal = []
    for first in (0, 1):
        ran = run([first] * 1000)
        legal.append((tuple(map(comparable, ran.results)), left()))
    for skipped, other in ((0, 1), (1, 0)):
        if pair.operations[skipped] in PASSES_OVER:
            stage.put_back()
            alone = director.run([calls[other]], [0])
            results = {skipped: PASSES_OVER[pair.operations[skipped]], other: comparable(alone.results[0])}
            legal.append(((results[0], results[1]), left()))
    excluding = set(pair.operations) <= set(ENDS) and len(set(pair.operations)) == 2 and len(set(pair.which)) == 1
    for ran in orders(run, MOST_SWITCHES):
        winners = [result for result in ran.results if not isinstance(result, Exception)]
        if excluding and len(winners) > 1:
            yield f"{pair} in the order {''.join(map(str, ran.steps))}: both won: {winners}"
        ended = (tuple(map(comparable, ran.results)), left())
        if ended not in legal:
            yield f"{pair} in the order {''.join(map(str, ran.steps))}: {ended} is none of {legal}"
