"""What a supervisor asks: is there anything to claim, and is it my turn to say so?"""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import Connection

from domain.statuses import Task, VersionStatus
from domain.wake import HINT_INTERVAL, claim_hint_due, longest_due_seconds, work_is_due
from tests.conftest import Connect, Database
from tests.domain.conftest import Force
from tests.domain.indexing import Indexing
from tests.domain.statements import executed, plan

BOTH = list(Task)


def test_nothing_is_due_when_there_is_nothing(indexing: Indexing, connection: Connection) -> None:
    assert not work_is_due(connection, BOTH)
    assert not claim_hint_due(connection, BOTH)
    assert longest_due_seconds(connection, BOTH) is None


def test_a_new_job_is_due_for_its_task(indexing: Indexing, connection: Connection) -> None:
    indexing.upload()
    assert work_is_due(connection, BOTH)
    assert work_is_due(connection, [Task.PARSE])
    assert not work_is_due(connection, [Task.EMBED])
    assert not work_is_due(connection, [])
    age = longest_due_seconds(connection, BOTH)
    assert age is not None
    assert 0 <= age < 60
    assert longest_due_seconds(connection, [Task.EMBED]) is None


def test_a_retry_is_due_when_its_time_has_come(committed: Indexing, force: Force) -> None:
    committed.upload()
    committed.fail(committed.bring_to(VersionStatus.EMBEDDING))
    committed.connection.commit()
    assert not work_is_due(committed.connection, BOTH)
    assert longest_due_seconds(committed.connection, BOTH) is None
    committed.connection.commit()
    force("UPDATE embedding_jobs SET next_retry_at = clock_timestamp() - interval '90 seconds'")
    assert work_is_due(committed.connection, [Task.EMBED])
    assert not work_is_due(committed.connection, [Task.PARSE])
    assert 90 <= (longest_due_seconds(committed.connection, BOTH) or 0) < 120


def test_a_running_job_is_due_for_everyone_when_its_lease_ran_out(committed: Indexing, force: Force) -> None:
    committed.upload()
    committed.bring_to(VersionStatus.PARSING)
    committed.connection.commit()
    assert not work_is_due(committed.connection, BOTH)
    committed.connection.commit()
    force("UPDATE embedding_jobs SET lease_expires_at = clock_timestamp() - interval '1 second'")
    assert work_is_due(committed.connection, [Task.EMBED])
    assert longest_due_seconds(committed.connection, BOTH) is None, "it runs, as far as anybody knows"


def test_one_hint_in_half_a_second_is_sent(committed: Indexing, force: Force) -> None:
    """Sent a moment ago is here in a few seconds: the machine may be slow."""
    committed.upload()
    assert claim_hint_due(committed.connection, BOTH)
    committed.connection.commit()
    force("UPDATE claim_hints SET sent_at = clock_timestamp() + interval '4 seconds'")
    assert not claim_hint_due(committed.connection, BOTH)
    committed.connection.commit()
    force("UPDATE claim_hints SET sent_at = clock_timestamp() - cast(:interval AS interval)", interval=HINT_INTERVAL)
    assert claim_hint_due(committed.connection, BOTH)


def test_a_caller_whose_tasks_have_nothing_due_does_not_take_the_turn(
    indexing: Indexing, connection: Connection
) -> None:
    indexing.upload()
    assert not claim_hint_due(connection, [Task.EMBED])
    assert claim_hint_due(connection, [Task.PARSE])


@pytest.mark.race
def test_a_caller_waits_for_nobody_who_asks_at_the_same_time(committed: Indexing, connect: Connect) -> None:
    committed.upload()
    committed.connection.commit()
    first, second = connect(), connect()
    assert claim_hint_due(first, BOTH)
    second.exec_driver_sql("SET LOCAL lock_timeout = '1ms'")
    assert not claim_hint_due(second, BOTH)
    first.commit()


@pytest.mark.race
def test_a_whole_fleet_sends_one_hint_in_half_a_second(
    committed: Indexing, connect: Connect, background: ThreadPoolExecutor
) -> None:
    committed.upload()
    committed.connection.commit()
    connections = [connect() for _ in range(12)]

    def ask(connection: Connection) -> bool:
        answer = claim_hint_due(connection, BOTH)
        connection.commit()
        return answer

    began = time.monotonic()
    hints = 0
    while hints < 3:
        hints += list(background.map(ask, connections)).count(True)
    assert hints <= 1 + (time.monotonic() - began) / HINT_INTERVAL.total_seconds()


def test_the_question_is_answered_from_the_heads_of_two_indexes(
    database: Database, indexing: Indexing, connection: Connection
) -> None:
    # A fresh database: what autovacuum learns of one that is shared and rolled back would sway the planner.
    indexing.upload()
    connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
    with executed(connection) as statements:
        work_is_due(connection, BOTH)
    found = plan(connection, statements[0])
    assert "jobs_due" in found
    assert "jobs_leased" in found
    assert "Seq Scan" not in found


def test_a_clock_that_was_set_back_silences_no_fleet(committed: Indexing, force: Force) -> None:
    committed.upload()
    committed.connection.commit()
    force("UPDATE claim_hints SET sent_at = clock_timestamp() + interval '1 hour'")
    assert claim_hint_due(committed.connection, BOTH)
