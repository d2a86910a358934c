"""One chaos run: a fleet, a flow of documents, a director, and the verdict."""

import random
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

from domain.policy import read_policies, set_policy
from tests.chaos import verdict
from tests.chaos.acts import LEASE, Scene
from tests.chaos.clock import LIBRARY, Clock
from tests.chaos.director import Director, Feeder, Stuck, asked, plan
from tests.chaos.fleet import Fleet
from tests.chaos.provider import MoodyProvider
from tests.chaos.report import Report, gather
from tests.end_to_end.conftest import System

UNFINISHED = "SELECT count(*) FROM embedding_jobs WHERE status IN ('PENDING', 'PROCESSING')"
END_LIMIT = 180.0  # s from the last harm until everything is at its end
# A run that gets no answer from the provider ends at its soft limit, 10 s; one that cannot, at the hard one.
LIMITS = {"LEASE_SECONDS": f"{LEASE:.0f}", "PARSE_TIME_LIMIT_SECONDS": "30", "EMBED_TIME_LIMIT_SECONDS": "20"}


def run(
    system: System,
    provider: MoodyProvider,
    seed: int,
    seconds: float,
    together: Sequence[int] = (1, 1, 2, 3),
    backlog: int = 12,
) -> Report:
    """Play for so many seconds, then let everything come to its end and judge it.

    The report says what is wrong, if anything is; this raises nothing for it.
    """
    set_short_delays(system)
    clock = Clock(system.folder) if LIBRARY else None
    fleet = Fleet(system)
    fleet.add("steady", "-c", "2", **LIMITS)
    fleet.add("skewed", "-c", "2", **LIMITS, **(clock.environment if clock is not None else {}))
    fleet.keep()
    feeder = Feeder(system, random.Random(seed + 1), backlog)
    feeder.start()
    director = Director(Scene(system, provider, fleet, clock))
    wrong: list[str] = []
    began_at = time.time()
    try:
        system.wait(lambda: len(system.jobs()) > 10 and "INDEXED" in system.jobs().values(), "documents flow")
        director.play(plan(seed, clock is not None, together), seconds)
    except Stuck as stuck:
        wrong.append(str(stuck))
    finally:
        feeder.stop()
        wrong += wait_for_the_end(system)
        ended_at = time.time()
        fleet.close()
    wrong += verdict.problems(system, provider, fleet, feeder, director.played)
    return gather(system, provider, fleet, director.played, wrong, seed, began_at, ended_at)


def wait_for_the_end(system: System) -> list[str]:
    """Wait until every job is at its end; what is not, after long enough."""
    deadline = time.monotonic() + END_LIMIT
    while asked(system, UNFINISHED) != [(0,)]:
        if time.monotonic() > deadline:
            return [f"not at their end {END_LIMIT:.0f} s after the last harm: {asked(system, UNFINISHED)}"]
        time.sleep(0.25)
    return []


def set_short_delays(system: System) -> None:
    """Retries after 1, 2, 4 and then every 8 s, so that recovery is soon seen."""
    with system.engine.begin() as connection:
        for policy in read_policies(connection):
            set_policy(
                connection,
                replace(policy, base_delay=timedelta(seconds=1), factor=Decimal(2), max_delay=timedelta(seconds=8)),
            )
