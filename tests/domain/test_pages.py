"""What is asked again and again reads a handful of pages, whatever else waits; the statements are the domain's own."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from sqlalchemy import Connection

from domain.claim import due_jobs, free_places
from domain.recover import recover_expired_leases
from domain.release import release_unbegun
from domain.statuses import Task
from domain.wake import claim_hint_due, longest_due_seconds, work_is_due
from tests.domain.conftest import Force
from tests.domain.indexing import Indexing
from tests.domain.statements import executed

PAGES = 60

# Jobs alone, without versions: 30,000 that are due later, 10,000 that are due for the other task, 10,000 that ended
# and 20 that are due.
FILL = """
    INSERT INTO embedding_jobs (version_id, document_id, owner_id, task, status, max_retry_count, next_retry_at)
    SELECT n, n, 'ann',
        CASE WHEN n % 5 = 1 THEN 'embed' ELSE 'parse' END,
        CASE WHEN n % 5 = 0 THEN 'INDEXED' ELSE 'PENDING' END,
        3,
        CASE WHEN n % 5 > 1 AND n % 2500 <> 7 THEN clock_timestamp() + interval '1 hour' END
    FROM generate_series(1, 50000) AS n
"""

ASKED: dict[str, Callable[[Connection], object]] = {
    "which jobs are due": lambda c: due_jobs(c, Task.PARSE, 20),
    "which leases ran out": recover_expired_leases,
    "how much may be claimed": free_places,
    "whether anything is due": lambda c: work_is_due(c, [Task.EMBED]),
    "whether to send a hint": lambda c: claim_hint_due(c, list(Task)),
    "which messages are lost": lambda c: release_unbegun(c, Task.PARSE, timedelta(seconds=5)),
}


@pytest.fixture
def crowded(committed: Indexing, force: Force) -> Connection:
    force(FILL)
    force("ANALYZE embedding_jobs")
    assert len(due_jobs(committed.connection, Task.PARSE, 100)) == 20
    assert (longest_due_seconds(committed.connection, list(Task)) or 0) > 0
    committed.connection.rollback()
    return committed.connection


def test_what_is_asked_again_and_again_reads_a_handful_of_pages(crowded: Connection) -> None:
    pages = {}
    for what, ask in ASKED.items():
        with executed(crowded) as statements:
            ask(crowded)
        crowded.rollback()
        pages[what] = 0
        for sql, parameters in statements:
            explained = crowded.exec_driver_sql(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}", parameters)
            plan = explained.scalar_one()[0]["Plan"]
            pages[what] += plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
            crowded.rollback()
    assert max(pages.values()) <= PAGES, pages
    assert min(pages.values()) > 0, pages
