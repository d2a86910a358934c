"""Messages carry a claim in headers, wait at most once, and are given back when they cannot be sent."""

from uuid import UUID

import pytest
from sqlalchemy import text

from domain.claim import ClaimedJob
from domain.held import Claim
from domain.statuses import JobStatus, Task
from embedded.servers import Servers
from settings import Settings
from tasks.app import app
from tasks.claim import waiting
from tasks.dispatch import Dispatch, dispatch
from tasks.messages import CLAIM_QUEUE, hint_unless_waiting, send_claim_hint, send_stage, waiting_messages
from tasks.requests import claim_headers, read_claim
from tests.domain.indexing import Indexing

CLAIM = Claim(7, 9, 3, UUID("11111111-2222-4333-8444-555555555555"))


@pytest.fixture
def claimed(connected: Settings, indexing: Indexing) -> list[ClaimedJob]:
    for name in ("a.txt", "b.txt", "c.txt"):
        indexing.upload(name)
    jobs = [indexing.claim() for _ in range(3)]
    indexing.connection.commit()
    return jobs


def statuses(indexing: Indexing) -> list[tuple[str, int]]:
    rows = indexing.connection.execute(text("SELECT status, retry_count FROM embedding_jobs ORDER BY id"))
    return [(status, count) for status, count in rows]


def test_an_empty_queue_counts_0_where_redis_says_404(connected: Settings) -> None:
    with app.connection_for_write() as broker:
        assert waiting_messages(broker, "parse") == 0
        send_stage(Task.PARSE, CLAIM, "doc=1", broker)
        assert waiting_messages(broker, "parse") == 1


def test_a_claim_travels_in_headers_and_is_read_back(connected: Settings) -> None:
    assert read_claim(claim_headers(CLAIM), CLAIM.job_id) == CLAIM
    with app.connection_for_write() as broker:
        send_stage(Task.EMBED, CLAIM, "doc=1 version=2", broker)
        message = broker.SimpleQueue("embed").get(timeout=5)
    arguments, named, _ = message.payload
    assert (arguments, named) == ([7], {})
    assert message.headers["argsrepr"] == "doc=1 version=2"
    assert read_claim(message.headers, arguments[0]) == CLAIM
    assert str(CLAIM.token) not in str(message.payload)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"claim": "x", "attempt": 1, "worker": 1},
        {"claim": str(CLAIM.token)},
        {"claim": None, "attempt": 1, "worker": 1},
    ],
    ids=["none", "no uuid", "half", "null"],
)
def test_a_message_without_a_whole_claim_has_none(headers: dict[str, object]) -> None:
    assert read_claim(headers, 7) is None


def test_one_hint_waits_at_most(connected: Settings) -> None:
    with app.connection_for_write() as broker:
        for _ in range(3):
            hint_unless_waiting(broker)
            send_claim_hint()
        assert waiting_messages(broker, CLAIM_QUEUE) == 1


def test_a_hint_that_cannot_be_sent_raises_nothing(connected: Settings, servers: Servers) -> None:
    servers.valkey.stop()
    try:
        send_claim_hint()
    finally:
        servers.valkey.start(servers.valkey.port)


def test_a_message_that_cannot_be_sent_keeps_no_other_back_and_is_given_back(
    claimed: list[ClaimedJob], indexing: Indexing
) -> None:
    first, second, third = (waiting(job) for job in claimed)
    unsendable = Dispatch(second.task, second.claim, object())  # type: ignore[arg-type]  # JSON has no word for it
    dispatch([first, unsendable, third])
    with app.connection_for_write() as broker:
        assert waiting_messages(broker, "parse") == 2
    assert statuses(indexing) == [(JobStatus.PROCESSING, 0), (JobStatus.PENDING, 0), (JobStatus.PROCESSING, 0)]


def test_without_a_broker_every_claim_is_given_back_and_no_retry_burned(
    claimed: list[ClaimedJob], indexing: Indexing, servers: Servers
) -> None:
    servers.valkey.stop()
    try:
        dispatch(waiting(job) for job in claimed)
    finally:
        servers.valkey.start(servers.valkey.port)
    assert statuses(indexing) == [(JobStatus.PENDING, 0)] * 3
