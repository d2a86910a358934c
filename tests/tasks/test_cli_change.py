"""``documents retry``, ``cancel``, ``delete`` and ``doctor``: what they do, say and end with."""

import json
from typing import Any

import pytest
from click.testing import CliRunner
from sqlalchemy import text

from domain.failures import FailureType
from domain.statuses import VersionStatus
from domain.workers import note_worker_stopped, register_worker
from embedded.servers import Servers
from settings import Settings
from tasks.cli import documents
from tests.conftest import Engines
from tests.domain.indexing import Indexing

pytestmark = pytest.mark.usefixtures("connected")


def run(*arguments: str) -> tuple[int, str, str]:
    ended = CliRunner().invoke(documents, list(arguments))
    return ended.exit_code, ended.stdout, ended.stderr


def asked(*arguments: str) -> tuple[int, Any]:
    code, out, _ = run(*arguments, "--json")
    return code, json.loads(out)


@pytest.fixture
def failed(indexing: Indexing) -> list[int]:
    """Documents that failed: two for their content, one for the store's sake; and one that waits."""
    ids = []
    for name, failure_type in (
        ("a.pdf", FailureType.DOCUMENT_CONTENT_INVALID),
        ("b.pdf", FailureType.DOCUMENT_CONTENT_INVALID),
        ("c.pdf", FailureType.EMBEDDING_RESULT_INVALID),
    ):
        ids.append(indexing.upload(name).document_id)
        indexing.fail(indexing.bring_to(VersionStatus.PARSING), failure_type)
    indexing.upload("waiting.pdf")
    indexing.connection.commit()
    return ids


def test_a_failed_document_is_retried_once(failed: list[int]) -> None:
    assert run("retry", str(failed[0])) == (0, f"document {failed[0]} retried\n", "")
    code, _, error = run("retry", str(failed[0]))
    assert code == 1
    assert "already waiting or running" in error


def test_all_that_failed_or_those_of_a_type_are_retried(failed: list[int]) -> None:
    assert asked("retry", "--type", "embedding_result_invalid") == (0, {"retried": [failed[2]], "refused": []})
    assert asked("retry", "--failed", "--owner", "nobody") == (0, {"retried": [], "refused": []})
    assert asked("retry", "--failed") == (0, {"retried": failed[:2], "refused": []})
    assert run("retry", "--failed") == (0, "nothing to be retried\n", "")


@pytest.mark.parametrize("arguments", [[], ["1", "--failed"], ["1", "--type", "WORKER_INTERNAL_ERROR"]])
def test_retry_wants_ids_or_a_choice_and_not_both(arguments: list[str]) -> None:
    code, _, error = run("retry", *arguments)
    assert code == 2
    assert "say which" in error


def test_an_unknown_failure_type_is_named_with_those_that_exist() -> None:
    code, _, error = run("retry", "--type", "NO_SUCH")
    assert code == 1
    assert "WORKER_INTERNAL_ERROR" in error


def test_one_that_cannot_be_changed_keeps_no_other_back(indexing: Indexing) -> None:
    first, second = indexing.upload("a").document_id, indexing.upload("b").document_id
    indexing.connection.commit()
    code, told = asked("cancel", str(first), "999999", str(second))
    assert code == 1
    assert told["cancelled"] == [first, second]
    assert [one["id"] for one in told["refused"]] == [999999]
    assert run("cancel", str(first))[0] == 1


def test_a_document_is_deleted_by_its_owner_alone_and_may_be_deleted_again(indexing: Indexing) -> None:
    document_id = indexing.index("a").document_id
    indexing.connection.commit()
    assert run("delete", str(document_id), "--owner", "bob")[0] == 1
    for _ in range(2):
        assert run("delete", str(document_id)) == (0, f"document {document_id} deleted\n", "")


def test_doctor_finds_nothing_where_all_is_well(indexing: Indexing) -> None:
    code, told = asked("doctor")
    assert (code, told["healthy"]) == (0, True)
    assert {one["what"] for one in told["findings"]} == {
        "database",
        "migrations",
        "queue claim",
        "queue parse",
        "queue embed",
        "work of parse",
        "work of embed",
        "leases",
        "claims",
        "broker",
        "store",
    }
    assert "ok   database" in run("doctor")[1]


def bad(told: Any) -> dict[str, str]:
    return {one["what"]: one["remedy"] for one in told["findings"] if not one["ok"]}


def test_doctor_names_a_queue_without_workers_and_the_command_for_it(indexing: Indexing) -> None:
    note_worker_stopped(indexing.connection, indexing.worker_id)
    register_worker(indexing.connection, "parser", ["parse", "claim"], 2)
    indexing.connection.commit()
    code, told = asked("doctor")
    assert code == 1
    assert bad(told) == {"queue embed": "celery -A tasks worker --queues=embed"}


def test_doctor_names_stuck_work(indexing: Indexing, engines: Engines) -> None:
    indexing.upload("due")
    indexing.bring_to(VersionStatus.PARSING)
    indexing.upload("claimed")
    indexing.claim()
    indexing.upload("waiting")
    indexing.connection.commit()
    with engines.superuser.begin() as connection:  # the rows are moved, not the clock
        connection.execute(text("SET session_replication_role = replica"))
        connection.execute(text("UPDATE embedding_jobs SET created_at = created_at - interval '10 minutes'"))
        connection.execute(text("UPDATE embedding_jobs SET updated_at = updated_at - interval '10 minutes'"))
        connection.execute(
            text(
                "UPDATE embedding_jobs j SET lease_expires_at = now() - interval '2 minutes' FROM indexing_attempts a "
                "WHERE a.job_id = j.id AND a.stage_started_at IS NOT NULL"
            )
        )
    code, told = asked("doctor")
    assert code == 1
    assert bad(told).keys() == {"work of parse", "leases", "claims"}


def test_doctor_names_missing_migrations(indexing: Indexing, engines: Engines) -> None:
    with engines.owner.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '0001'"))
    code, told = asked("doctor")
    assert code == 1
    assert bad(told) == {"migrations": "alembic upgrade head"}


def test_doctor_names_a_broker_that_is_away(indexing: Indexing, servers: Servers) -> None:
    servers.valkey.stop()
    try:
        code, told = asked("doctor")
    finally:
        servers.valkey.start()
    assert code == 1
    assert bad(told).keys() == {"broker"}


def test_doctor_cannot_tell_without_the_database(indexing: Indexing, servers: Servers) -> None:
    indexing.connection.close()
    servers.postgres.stop()
    try:
        code, told = asked("doctor")
    finally:
        servers.postgres.start()
    assert code == 2
    assert "database" in bad(told)


def test_doctor_names_a_store_that_cannot_be_written(
    indexing: Indexing, connected: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = connected.model_copy(update={"storage_url": "file:///proc/nowhere"})
    monkeypatch.setattr("tasks.cli_doctor.settings", lambda: changed)
    code, told = asked("doctor")
    assert code == 1
    assert bad(told).keys() == {"store"}
