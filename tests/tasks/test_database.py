"""Transactions: what is repeated, what is not, and what no connection may carry over."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from domain.enqueue import Upload, enqueue_document
from tasks.database import engine, run_transaction, sqlstate, transaction
from tests.domain.indexing import Indexing

pytestmark = pytest.mark.usefixtures("connected")


def test_a_transaction_commits_at_its_end_and_rolls_back_on_an_exception(indexing: Indexing) -> None:
    def upload(name: str, then: str) -> None:
        with transaction() as connection:
            enqueue_document(connection, Upload("ann", name, "file:///a"), indexing.model_id)
            connection.execute(text(then))

    upload("kept.txt", "SELECT 1")
    with pytest.raises(DBAPIError):
        upload("gone.txt", "SELECT 1/0")
    assert indexing.connection.execute(text("SELECT name FROM documents")).scalars().all() == ["kept.txt"]


def test_timeouts_are_set_for_the_transaction_and_no_longer() -> None:
    shown = text("SELECT current_setting('lock_timeout'), current_setting('statement_timeout')")
    with transaction() as connection:
        assert tuple(connection.execute(shown).one()) == ("5s", "1min")
    with engine().connect() as connection:
        assert tuple(connection.execute(shown).one()) == ("0", "0")


def test_the_isolation_is_read_committed_and_nothing_is_prepared() -> None:
    for _ in range(10):
        with transaction() as connection:
            assert connection.execute(text("SHOW transaction_isolation")).scalar_one() == "read committed"
    with transaction() as connection:
        assert connection.execute(text("SELECT count(*) FROM pg_prepared_statements")).scalar_one() == 0


@pytest.mark.race
def test_of_two_transactions_in_a_deadlock_the_loser_is_repeated(indexing: Indexing) -> None:
    for name in ("a.txt", "b.txt"):
        indexing.upload(name)
    indexing.connection.commit()
    both_hold_one = threading.Barrier(2, timeout=20)
    tries = {"ab": 0, "ba": 0}

    def touch(order: str) -> None:
        def work(connection: Connection) -> None:
            tries[order] += 1
            for place, letter in enumerate(order):
                connection.execute(
                    text("SELECT 1 FROM documents WHERE name = :name FOR UPDATE"), {"name": f"{letter}.txt"}
                )
                if place == 0 and tries[order] == 1:
                    both_hold_one.wait()

        run_transaction(work)

    with ThreadPoolExecutor(2) as threads:
        for ended in [threads.submit(touch, order) for order in tries]:
            ended.result(timeout=30)
    assert sorted(tries.values()) == [1, 2]


def test_a_query_that_was_too_slow_is_not_repeated() -> None:
    tries = 0

    def too_slow(connection: Connection) -> None:
        nonlocal tries
        tries += 1
        connection.execute(text("SELECT set_config('statement_timeout', '50', true)"))
        connection.execute(text("SELECT pg_sleep(5)"))

    with pytest.raises(DBAPIError) as caught:
        run_transaction(too_slow)
    assert sqlstate(caught.value) == "57014"
    assert tries == 1


def test_an_error_shows_no_value_of_a_statement() -> None:
    with pytest.raises(DBAPIError) as caught, transaction() as connection:
        connection.execute(text("SELECT CAST(:value AS bigint)"), {"value": "the document's text"})
    assert "the document's text" not in str(caught.value).replace(str(caught.value.orig), "")


def test_a_forked_child_has_connections_of_its_own() -> None:
    from tasks.database import forget_the_parents_connections

    with transaction() as connection:
        parents = connection.execute(text("SELECT pg_backend_pid()")).scalar_one()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:  # what celery does in a pool child
        try:
            forget_the_parents_connections()
            with transaction() as connection:
                own = connection.execute(text("SELECT pg_backend_pid()")).scalar_one()
            os.write(writing, str(own).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert int(os.read(reading, 20)) != parents
    with transaction() as connection:
        assert connection.execute(text("SELECT pg_backend_pid()")).scalar_one() == parents
