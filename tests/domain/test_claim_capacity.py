"""How much is claimed: no more than the workers that were seen lately can soon begin."""

from collections.abc import Callable

import pytest
from sqlalchemy import Connection

from domain.claim import claim_jobs
from domain.release import release_attempt
from domain.statuses import Task, VersionStatus
from domain.workers import note_worker_seen, note_worker_stopped, register_worker
from tests.domain.conftest import Force
from tests.domain.indexing import Indexing
from tests.domain.rows import one

Serve = Callable[..., int]


@pytest.fixture
def serve(indexing: Indexing) -> Serve:
    """Makes the only workers that serve; the one of ``indexing`` stops."""
    note_worker_stopped(indexing.connection, indexing.worker_id)

    def serve(*queues: str, concurrency: int = 1) -> int:
        return register_worker(indexing.connection, "w", queues, concurrency)

    return serve


def upload(indexing: Indexing, number: int, start: int = 0) -> None:
    for index in range(start, start + number):
        indexing.upload(f"{index}.txt")


def claim(indexing: Indexing, tasks: tuple[Task, ...] = tuple(Task)) -> list[Task]:
    return [job.task for job in claim_jobs(indexing.connection, indexing.worker_id, 100, tasks)]


def test_twice_the_concurrency_of_the_workers_that_serve_a_queue_is_claimed(indexing: Indexing, serve: Serve) -> None:
    serve("parse", "embed", concurrency=2)
    serve("parse", concurrency=1)
    upload(indexing, 10)
    assert len(claim(indexing)) == 6
    assert claim(indexing) == []


def test_a_queue_that_nobody_serves_is_not_claimed(indexing: Indexing, serve: Serve) -> None:
    serve("embed")
    upload(indexing, 1)
    assert claim(indexing) == []


def test_nothing_is_claimed_for_parse_while_nobody_can_embed(indexing: Indexing, serve: Serve) -> None:
    serve("parse", "claim", concurrency=5)
    upload(indexing, 3)
    assert claim(indexing) == []


def test_a_worker_that_stopped_serves_nothing(indexing: Indexing, serve: Serve) -> None:
    worker = serve("parse", "embed")
    upload(indexing, 1)
    note_worker_stopped(indexing.connection, worker)
    note_worker_seen(indexing.connection, worker)
    assert claim(indexing) == []


def test_claims_whose_stage_has_begun_take_no_place(indexing: Indexing, serve: Serve) -> None:
    serve("parse", "embed")
    upload(indexing, 10)
    first = claim_jobs(indexing.connection, indexing.worker_id, 100, tuple(Task))
    assert len(first) == 2
    indexing.begin(first[0])
    assert len(claim(indexing)) == 1


def test_an_attempt_that_parse_handed_over_takes_a_place_of_embed(indexing: Indexing, serve: Serve) -> None:
    serve("parse", "embed")
    upload(indexing, 10)
    claims = claim_jobs(indexing.connection, indexing.worker_id, 100, tuple(Task))
    for claimed in claims:
        indexing.begin(claimed)
        indexing.parse(claimed.claim, ["one"])
        indexing.chunk(claimed.claim, ["one"])
    assert claim(indexing) == [], "embed is full with what parse handed over, so nothing is claimed for parse"
    indexing.begin(claims[0], Task.EMBED)
    assert claim(indexing) == [Task.PARSE, Task.PARSE]


def test_embed_being_full_stops_parse_also_when_the_same_claim_fills_it(indexing: Indexing, serve: Serve) -> None:
    several = serve("parse", "embed", concurrency=5)
    upload(indexing, 4)
    to_embed = [indexing.bring_to(VersionStatus.EMBEDDING) for _ in range(2)]
    for claimed in to_embed:
        release_attempt(indexing.connection, claimed.claim)
    note_worker_stopped(indexing.connection, several)
    serve("parse", "embed", concurrency=1)
    assert claim(indexing) == [Task.EMBED, Task.EMBED]


def test_a_release_gives_the_place_back(indexing: Indexing, serve: Serve) -> None:
    serve("parse", "embed")
    upload(indexing, 10)
    claims = claim_jobs(indexing.connection, indexing.worker_id, 100, tuple(Task))
    release_attempt(indexing.connection, claims[0].claim)
    assert len(claim(indexing)) == 1


def test_reports_of_lost_claims_move_no_place(indexing: Indexing, serve: Serve) -> None:
    serve("parse", "embed")
    upload(indexing, 10)
    lost = claim_jobs(indexing.connection, indexing.worker_id, 100, tuple(Task))[0]
    release_attempt(indexing.connection, lost.claim)
    assert len(claim(indexing)) == 1
    for _ in range(5):
        release_attempt(indexing.connection, lost.claim)
    assert claim(indexing) == []


def test_a_worker_that_was_not_seen_for_half_a_minute_serves_nothing_until_it_is_seen(
    committed: Indexing, connection: Connection, force: Force
) -> None:
    committed.upload()
    committed.connection.commit()
    force("UPDATE workers SET last_seen_at = clock_timestamp() - interval '31 seconds'")
    assert claim(committed) == []
    note_worker_seen(committed.connection, committed.worker_id)
    assert claim(committed) == [Task.PARSE]
    assert one(committed.connection, "SELECT count(*) FROM indexing_attempts") == 1


def test_an_expired_job_is_claimed_again_although_its_dead_worker_held_the_only_places(
    committed: Indexing, force: Force
) -> None:
    note_worker_stopped(committed.connection, committed.worker_id)
    committed.worker_id = register_worker(committed.connection, "one", ["parse", "embed"], 1)
    upload(committed, 4)
    assert len(claim(committed)) == 2
    assert claim(committed) == []
    committed.connection.commit()
    force("UPDATE embedding_jobs SET lease_expires_at = clock_timestamp() - interval '1 s' WHERE status = 'PROCESSING'")
    assert len(claim(committed)) == 2
