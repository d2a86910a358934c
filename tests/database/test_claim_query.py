"""The claim reads a handful of pages, whatever waits beside what is due."""

from typing import Any

import pytest
from sqlalchemy import Connection, create_engine
from sqlalchemy.pool import NullPool

from tests.conftest import Database
from tests.database.refusals import one, run

FUTURE = 1_000_000
OTHER_TASK = 200_000
DUE = 100
PAGES = 50

CLAIM = """
    SELECT id FROM embedding_jobs WHERE status = 'PENDING' AND task = '{task}' AND due_at <= statement_timestamp()
    ORDER BY due_at, id LIMIT 20 FOR NO KEY UPDATE SKIP LOCKED
"""
EXPIRED = """
    SELECT id FROM embedding_jobs WHERE status = 'PROCESSING' AND lease_expires_at <= statement_timestamp()
    ORDER BY lease_expires_at LIMIT 20 FOR NO KEY UPDATE SKIP LOCKED
"""


def fill(connection: Connection) -> None:
    """Jobs without versions: what the triggers and keys would say is beside the point, and would take hours."""
    run(connection, "SET session_replication_role = replica")
    for index in ("jobs_live_of_owner", "jobs_live_of_document", "jobs_of_version", "jobs_one_live_per_version"):
        run(connection, f"DROP INDEX {index}")  # none of them can serve the claim
    run(
        connection,
        """
        INSERT INTO embedding_jobs (version_id, document_id, owner_id, task, max_retry_count, next_retry_at)
        SELECT n, n, 'owner', CASE WHEN n > :future + :due THEN 'embed' ELSE 'parse' END, 3,
            -- The due ones of the task lie scattered among the future ones.
            CASE WHEN n > :future + :due OR n % (:future / :due) = 0 THEN now() - interval '1 minute'
                ELSE now() + interval '1 hour' + n * interval '1 second' END
        FROM generate_series(1, :future + :due + :other) n
        """,
        future=FUTURE,
        due=DUE,
        other=OTHER_TASK,
    )
    run(connection, "ANALYZE embedding_jobs")


def explain(connection: Connection, sql: str) -> tuple[int, int]:
    """Pages that the statement touched, and rows it returned."""
    explained: list[dict[str, Any]] = one(connection, f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}")
    plan = explained[0]["Plan"]
    connection.rollback()
    return plan["Shared Hit Blocks"] + plan["Shared Read Blocks"], plan["Actual Rows"]


@pytest.mark.timeout(120)
def test_a_claim_reads_a_handful_of_pages_beside_a_million_future_jobs_and_those_of_the_other_task(
    database: Database,
) -> None:
    engine = create_engine(database.superuser_url, poolclass=NullPool, connect_args={"sslmode": "disable"})
    with engine.connect() as connection:
        fill(connection)
        connection.commit()
        due = one(
            connection,
            "SELECT count(*) FROM embedding_jobs WHERE task = 'parse' AND due_at <= statement_timestamp()",
        )
        connection.rollback()
        assert due == DUE
        for task in ("parse", "embed"):
            pages, rows = explain(connection, CLAIM.format(task=task))
            assert rows == 20
            assert pages <= PAGES, task
        pages, rows = explain(connection, EXPIRED)
        assert rows == 0
        assert pages <= PAGES
