"""Poisoned documents: each fails for its own reason, and neither its neighbours nor its worker notice.

``POISON=1000`` in the environment makes it a thousand of them, and the memory of the main process the point.
"""

import os
from pathlib import Path

import pytest

from tests.end_to_end.conftest import FAULTY, System

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(3600)]

INTERNAL, CONTENT = "WORKER_INTERNAL_ERROR", "DOCUMENT_CONTENT_INVALID"
KINDS = {
    "kill": (INTERNAL, "WORKER_KILLED"),
    "segfault": (INTERNAL, "WORKER_KILLED"),
    "abort": (INTERNAL, "WORKER_KILLED"),
    "exit_at_once": (INTERNAL, "WORKER_KILLED"),
    "exit": (INTERNAL, None),
    "exhaust": (INTERNAL, "MEMORY"),
    "recurse": (INTERNAL, None),
    "fill": (INTERNAL, None),
    "refuse": (CONTENT, "CORRUPT"),
}
POISONED = int(os.environ.get("POISON", "50"))
# Four attempts of each kind; the rest have one, so that there are many documents in little time. A lost child costs
# its worker about a second until it is noticed.
BUDGET = 3
GROWTH = 20 << 20  # bytes


def resident(pid: int) -> int:
    """Bytes of memory that a process holds."""
    [line] = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) * 1024


def test_poison_of_every_kind_fails_for_its_reason_and_touches_no_neighbour(system: System) -> None:
    system.set_retry_delay(0)
    system.set_faults(*({"stage": "PARSING", "name": f"{kind}-*", "action": kind, "times": "always"} for kind in KINDS))
    kinds = list(KINDS)
    names = [f"{kinds[number % len(kinds)]}-{number}.txt" for number in range(POISONED)]
    neighbours = [f"harmless-{number}.txt" for number in range(max(10, POISONED // 10))]
    worker = system.start_worker("-c", "2", app=FAULTY)
    system.upload("harmless-first.txt")
    system.wait_until_all()
    for number, name in enumerate(names):
        system.upload(name, max_retry_count=BUDGET if number < len(kinds) else 0)
        if number % (POISONED // len(neighbours)) == 0:
            system.upload(neighbours[number // (POISONED // len(neighbours))])
    ended = "SELECT count(*) FROM embedding_jobs WHERE status = 'FAILED'"
    system.wait(lambda: system.one(ended) >= POISONED // 5, "a fifth has failed", limit=600)
    before = resident(worker.process.pid)
    system.wait(lambda: not {"PENDING", "PROCESSING"} & set(system.jobs().values()), "all have ended", limit=3000)

    missed = 0
    for number, name in enumerate(names):
        kind = name.split("-")[0]
        tries = 1 if KINDS[kind][0] == CONTENT or number >= len(kinds) else BUDGET + 1
        found = system.attempts(name)
        # A child that dies before its parent has read that it took the message is missed by its lease only.
        missed += sum(KINDS[kind][1] == "WORKER_KILLED" and reason == "LEASE_EXPIRED" for _, _, reason in found)
        told = [KINDS[kind][1] if reason == "LEASE_EXPIRED" else reason for _, _, reason in found]
        assert [one[:2] for one in found] == [("FAILED", KINDS[kind][0])] * tries, name
        assert told == [KINDS[kind][1]] * tries, name
    assert missed <= max(1, POISONED // 50)
    for name in neighbours:
        assert system.attempts(name) == [("INDEXED", None, None)], name
    assert worker.process.poll() is None
    assert resident(worker.process.pid) - before < GROWTH


def test_native_code_that_spins_and_a_text_of_a_gigabyte_cost_a_child_at_most(system: System) -> None:
    system.set_faults(
        {"stage": "PARSING", "name": "spin.txt", "action": "spin"},
        {"stage": "PARSING", "name": "swell.txt", "action": "swell"},
    )
    worker = system.start_worker("-c", "2", app=FAULTY, PARSE_TIME_LIMIT_SECONDS="24")
    system.upload("spin.txt", max_retry_count=0)
    system.upload("swell.txt")
    system.upload("harmless.txt")
    system.wait(lambda: not {"PENDING", "PROCESSING"} & set(system.jobs().values()), "all have ended")
    assert system.attempts("spin.txt") == [("FAILED", INTERNAL, "TIME_LIMIT")]
    assert system.attempts("swell.txt") == [("FAILED", CONTENT, "TOO_LARGE")]
    assert system.attempts("harmless.txt") == [("INDEXED", None, None)]
    assert worker.process.poll() is None
