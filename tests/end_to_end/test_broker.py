"""The broker may forget, repeat, stop or never have existed: documents are indexed all the same, once."""

import pytest

from domain.held import Claim
from domain.statuses import Task
from domain.workers import register_worker
from settings import Settings
from tasks.messages import send_stage
from tests.end_to_end.conftest import FAULTY, System

pytestmark = pytest.mark.end_to_end


def names(count: int) -> list[str]:
    return [f"{number}.txt" for number in range(count)]


def assert_indexed_once(system: System) -> None:
    """Every document is INDEXED, none was embedded twice, no retry was burned."""
    assert set(system.provider.embedded.values()) == {1}
    assert system.rows("SELECT DISTINCT status, retry_count FROM embedding_jobs") == [("INDEXED", 0)]


def test_a_broker_wiped_again_and_again_mid_run_loses_no_document_and_indexes_none_twice(system: System) -> None:
    for name in names(40):
        system.upload(name)
    system.start_worker("-c", "2", name="first")
    for share in (8, 16, 28):
        system.wait_until_indexed(share)
        system.servers.valkey.flush()
    system.wait_until_all()
    assert_indexed_once(system)


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_a_worker_with_running_stages_and_a_backlog_outlives_its_broker(system: System, how: str) -> None:
    """The table that decides the acknowledgement settings and the version of Celery: the same process afterwards."""
    waiting = names(2)
    system.set_faults(*({"stage": "PARSING", "name": name, "action": "wait"} for name in waiting))
    for name in names(8):
        system.upload(name)
    worker = system.start_worker("-c", "2", app=FAULTY)
    system.wait(lambda: all(system.reached("PARSING", name) for name in waiting), "two stages run")
    backlog = "SELECT count(*) FROM indexing_attempts WHERE status = 'STARTED' AND stage_started_at IS NULL"
    system.wait(lambda: system.one(backlog) >= 2, "messages wait behind them")

    valkey = system.servers.valkey
    valkey.stop() if how == "stopped" else valkey.kill()
    system.wait(lambda: "Cannot connect to redis" in worker.said, "the worker has noticed")
    # Leases are renewed meanwhile, by a thread that needs no broker.
    leases = (
        "SELECT min(lease_expires_at) FROM embedding_jobs j JOIN indexing_attempts a ON a.job_id = j.id "
        "WHERE a.status = 'STARTED' AND a.stage_started_at IS NOT NULL"
    )
    before = system.one(leases)
    system.wait(lambda: system.one(leases) > before, "leases are renewed without a broker")
    for name in waiting:
        system.let_go("PARSING", name)
    valkey.start(valkey.port)
    system.wait_until_all()
    assert worker.process.poll() is None
    assert_indexed_once(system)


def test_a_worker_started_before_its_broker_works_once_there_is_one(system: System) -> None:
    system.upload("a.txt")
    valkey = system.servers.valkey
    valkey.stop()
    worker = system.start_worker("-c", "1", until=[" registered as "])
    system.wait(lambda: "Cannot connect to redis" in worker.said, "it has noticed")
    valkey.start(valkey.port)
    system.wait_until_all()


def test_adding_without_a_broker_accepts_the_documents_says_so_and_ends_0(system: System) -> None:
    valkey = system.servers.valkey
    valkey.stop()
    (system.folder / "note.md").write_text("Accepted means committed.\n")
    ended = system.command("documents", "add", str(system.folder / "note.md"), "--json")
    assert ended.returncode == 0, ended.stderr
    assert "broker" in ended.stderr
    assert list(system.jobs().values()) == ["PENDING"]
    valkey.start(valkey.port)


def test_a_stage_message_lost_after_its_commit_is_noticed_and_the_job_claimed_again(system: System) -> None:
    system.upload("a.txt")
    system.start_worker("-c", "1", "-Q", "claim,embed", name="claimer")
    with system.engine.begin() as connection:  # a worker of the parse queue that hears nothing
        register_worker(connection, "deaf@test", ["parse"], 1)
    system.command("call", "tasks.claim")
    unbegun = "SELECT count(*) FROM indexing_attempts WHERE status = 'STARTED' AND stage_started_at IS NULL"
    system.wait(lambda: system.one(unbegun) == 1, "it is claimed")
    system.servers.valkey.flush()
    system.wait(lambda: ("RELEASED", None, None) in system.attempts("a.txt"), "the claim is given back")
    system.start_worker("-c", "1", "-Q", "parse", name="parser")
    system.wait_until_all()
    assert_indexed_once(system)


def test_a_stage_message_delivered_five_times_runs_once(system: System, configured: Settings) -> None:
    system.set_faults({"stage": "PARSING", "name": "a.txt", "action": "wait"})
    system.upload("a.txt")
    worker = system.start_worker("-c", "2", app=FAULTY)
    system.wait(lambda: system.reached("PARSING", "a.txt"), "the stage runs")
    [(job_id, attempt_id, worker_id, token)] = system.rows(
        "SELECT job_id, id, worker_id, claim_token FROM indexing_attempts"
    )
    for _ in range(5):
        send_stage(Task.PARSE, Claim(job_id, attempt_id, worker_id, token), "a repeated message")
    system.wait(lambda: worker.said.count("stale: ") == 5, "all five are refused")
    system.let_go("PARSING", "a.txt")
    system.wait_until_all()
    assert system.attempts("a.txt") == [("INDEXED", None, None)]
    assert_indexed_once(system)


def test_a_message_without_a_claim_runs_nothing(system: System) -> None:
    system.upload("a.txt")
    worker = system.start_worker("-c", "1")
    system.wait_until_all()
    system.command("call", "tasks.embed", "--args", "[1]", "--queue", "embed")
    system.wait(lambda: "NotClaimed" in worker.said, "it is refused")
    assert len(system.attempts("a.txt")) == 1


def test_a_document_is_accepted_by_message_once(system: System) -> None:
    system.upload("other.txt")
    uri = system.one("SELECT storage_uri FROM document_versions")
    worker = system.start_worker("-c", "1")
    request = ["--args", f'["owner", "by-message.txt", "{uri}"]', "--kwargs", '{"request_id": "r-1"}']
    for _ in range(2):
        assert system.command("call", "tasks.enqueue_document", *request).returncode == 0
    system.wait(lambda: worker.said.count("tasks.enqueue_document") >= 4, "both have run")
    system.wait(lambda: system.documents() == {"other.txt": "INDEXED", "by-message.txt": "INDEXED"}, "both indexed")
    assert system.one("SELECT count(*) FROM document_versions") == 2


def test_a_message_that_names_bytes_outside_the_store_is_refused_at_once(system: System) -> None:
    worker = system.start_worker("-c", "1")
    arguments = '["owner", "passwords.txt", "file:///etc/passwd"]'
    assert system.command("call", "tasks.enqueue_document", "--args", arguments).returncode == 0
    system.wait(lambda: "not accepted" in worker.said, "it is refused")
    assert system.one("SELECT count(*) FROM documents") == 0
