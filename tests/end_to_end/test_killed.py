"""Children and workers that die: the document is retried, and nothing is embedded twice."""

import signal

import pytest

from domain.statuses import STAGES
from tests.end_to_end.conftest import FAULTY, System, text_of

pytestmark = pytest.mark.end_to_end

INTERNAL = "WORKER_INTERNAL_ERROR"


@pytest.fixture
def system(system: System) -> System:
    system.set_retry_delay(0.5)
    return system


def test_a_child_that_dies_in_any_stage_is_reported_at_once_and_its_document_retried(system: System) -> None:
    faults = [(stage, action) for stage in STAGES for action in ("kill", "exit")] + [("PARSING", "segfault")]
    system.set_faults(
        *({"stage": stage, "name": f"{stage}-{action}.txt", "action": action} for stage, action in faults)
    )
    for stage, action in faults:
        system.upload(f"{stage}-{action}.txt")
    worker = system.start_worker("-c", "2", app=FAULTY)
    system.wait_until_all()
    for stage, action in faults:
        first, *_ = system.attempts(f"{stage}-{action}.txt")
        # An exit is an exception like others to the stage's own process, which records it itself.
        assert first == ("FAILED", INTERNAL, "WORKER_KILLED" if action != "exit" else None)
        assert system.attempts(f"{stage}-{action}.txt")[1:] == [("INDEXED", None, None)]
    assert worker.process.poll() is None


def test_a_document_that_kills_every_child_ends_failed_after_four_attempts(system: System) -> None:
    system.set_faults({"stage": "PARSING", "name": "killer.txt", "action": "kill", "times": 99})
    system.upload("killer.txt")
    system.upload("harmless.txt")
    system.start_worker("-c", "2", app=FAULTY)
    system.wait(lambda: system.jobs() == {"killer.txt": "FAILED", "harmless.txt": "INDEXED"}, "one failed, one not")
    assert system.attempts("killer.txt") == [("FAILED", INTERNAL, "WORKER_KILLED")] * 4
    assert system.documents() == {"killer.txt": "FAILED", "harmless.txt": "INDEXED"}


def test_a_stage_over_its_hard_limit_is_killed_and_recorded_once(system: System) -> None:
    system.set_faults(
        {"stage": "PARSING", "name": "deaf.txt", "action": "sleep_deaf"},
        {"stage": "EMBEDDING", "name": "slow.txt", "action": "sleep"},
    )
    system.upload("deaf.txt")
    system.upload("slow.txt")
    system.start_worker("-c", "2", app=FAULTY, PARSE_TIME_LIMIT_SECONDS="4", EMBED_TIME_LIMIT_SECONDS="8")
    system.wait_until_all()
    for name in ("deaf.txt", "slow.txt"):  # by the hard limit, and by the soft one before it
        assert system.attempts(name) == [("FAILED", INTERNAL, "TIME_LIMIT"), ("INDEXED", None, None)]


def test_a_stage_that_runs_out_of_memory_or_stack_harms_no_worker(system: System) -> None:
    system.set_faults(
        {"stage": "PARSING", "name": "memory.txt", "action": "memory"},
        {"stage": "EMBEDDING", "name": "stack.txt", "action": "recurse"},
    )
    system.upload("memory.txt")
    system.upload("stack.txt")
    worker = system.start_worker("-c", "2", app=FAULTY)
    system.wait_until_all()
    assert system.attempts("memory.txt")[0] == ("FAILED", INTERNAL, "MEMORY")
    assert system.attempts("stack.txt")[0] == ("FAILED", INTERNAL, None)
    assert worker.process.poll() is None
    assert "WorkerLostError" not in worker.said


def test_a_worker_killed_in_every_stage_loses_nothing_and_embeds_nothing_twice(system: System) -> None:
    names = {stage: f"{stage}.txt" for stage in STAGES}
    system.set_faults(*({"stage": stage, "name": name, "action": "wait"} for stage, name in names.items()))
    for name in names.values():
        system.upload(name)
    victim = system.start_worker("-c", "4", app=FAULTY)
    system.wait(lambda: all(system.reached(stage, name) for stage, name in names.items()), "each is in its stage")
    before = dict(system.provider.embedded)
    victim.kill()

    system.start_worker("-c", "2", name="rescuer")
    system.wait_until_all()
    for name in names.values():
        assert system.attempts(name) == [("FAILED", INTERNAL, "LEASE_EXPIRED"), ("INDEXED", None, None)]
    # Only the batch that was in flight, embedded but not stored, was asked for a second time.
    twice = {text for text, count in system.provider.embedded.items() if count > 1}
    assert twice == {text for text in before if "EMBEDDING.txt" in text}
    assert system.one("SELECT count(*) FROM embedding_jobs WHERE retry_count <> 1") == 0


def test_a_restarted_worker_of_the_same_name_inherits_no_claim(system: System) -> None:
    system.set_faults({"stage": "PARSING", "name": "a.txt", "action": "wait"})
    system.upload("a.txt")
    first = system.start_worker("-c", "1", app=FAULTY, name="same")
    system.wait(lambda: system.reached("PARSING", "a.txt"), "the stage runs")
    first.kill()
    system.start_worker("-c", "1", name="same")
    system.wait_until_all()
    assert system.attempts("a.txt") == [("FAILED", INTERNAL, "LEASE_EXPIRED"), ("INDEXED", None, None)]
    ran = system.rows(
        "SELECT a.run_by, w.name FROM indexing_attempts a JOIN workers w ON w.id = a.run_by ORDER BY a.id"
    )
    assert [name for _, name in ran] == ["same@test", "same@test"]
    assert len({worker_id for worker_id, _ in ran}) == 2


def test_a_shutdown_gives_back_what_it_interrupts_and_burns_no_retry(system: System) -> None:
    """By SIGTERM where REMAP_SIGTERM=SIGQUIT is set, as for containers that are given seconds to stop."""
    system.set_faults(*({"stage": stage, "name": f"{stage}.txt", "action": "wait"} for stage in STAGES))
    for stage in STAGES:
        system.upload(f"{stage}.txt")
    worker = system.start_worker("-c", "4", app=FAULTY, REMAP_SIGTERM="SIGQUIT")
    system.wait(lambda: all(system.reached(stage, f"{stage}.txt") for stage in STAGES), "each is in its stage")
    worker.stop(signal.SIGTERM)

    for stage in STAGES:
        assert system.attempts(f"{stage}.txt") == [("RELEASED", None, None)]
    found = system.rows("SELECT DISTINCT status, retry_count, due_at <= now() FROM embedding_jobs")
    assert found == [("PENDING", 0, True)]
    assert system.one("SELECT count(*) FROM indexing_events WHERE type = 'RELEASED'") == len(STAGES)
    assert system.one("SELECT count(*) FROM workers WHERE stopped_at IS NULL") == 0
    system.start_worker("-c", "2", name="next")
    system.wait_until_all()


def test_a_warm_shutdown_finishes_the_stage_and_hands_the_rest_to_the_next_worker(system: System) -> None:
    system.set_faults({"stage": "CHUNKING", "name": "a.txt", "action": "wait"})
    system.upload("a.txt", text_of("a.txt"))
    worker = system.start_worker("-c", "1", app=FAULTY)
    system.wait(lambda: system.reached("CHUNKING", "a.txt"), "the stage runs")
    worker.process.send_signal(signal.SIGTERM)
    system.wait(lambda: "Warm shutdown" in worker.said, "the worker drains")
    # It goes on renewing the lease of what still runs, for longer than the lease.
    before = system.one("SELECT lease_expires_at FROM embedding_jobs")
    system.wait(lambda: system.one("SELECT lease_expires_at FROM embedding_jobs") > before, "the lease is renewed")
    system.let_go("CHUNKING", "a.txt")
    assert worker.process.wait(30) == 0
    system.start_worker("-c", "1", name="next")
    system.wait_until_all()
    assert system.attempts("a.txt") == [("INDEXED", None, None)]
