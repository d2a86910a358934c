"""The connection to the broker is cut before anything that passes on it, or falls silent: no publisher hangs."""

import time
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest
from kombu.exceptions import OperationalError

from domain.held import Claim
from domain.statuses import Task
from settings import Settings
from tasks.app import app
from tasks.messages import CLAIM_QUEUE, send_claim_hint, send_stage, waiting_messages
from tests.cuts.proxy import Proxy, Strike

pytestmark = pytest.mark.race

CLAIM = Claim(1, 2, 3, UUID(int=4))
CUT_NOTICED = 10.0  # s: a cut is noticed at once, and tried again a few times
SOCKET_TIMEOUT = 3
SILENCE_NOTICED = 4.0 * SOCKET_TIMEOUT  # s: one for each of a few tries


def stage() -> None:
    send_stage(Task.PARSE, CLAIM, "doc=1")


@pytest.fixture
def broker(to_redis: Proxy, configured: Settings) -> Iterator[Proxy]:
    """The app of this process publishes through this proxy."""
    options = dict(app.conf.broker_transport_options)
    patience = options | {"socket_timeout": SOCKET_TIMEOUT}  # as set by celeryconfig.py, only shorter
    app.conf.update(broker_url=configured.redis_url.get_secret_value(), broker_transport_options=patience)
    app.set_current()
    yield to_redis
    to_redis.cut_all()
    app.conf.update(broker_transport_options=options)
    celery: Any = app
    celery.pool.force_close_all()
    celery._after_fork()


def waiting(queue: str) -> int:
    with app.connection_for_read() as connection:
        return waiting_messages(connection, queue)


def messages_of(broker: Proxy, publish: Callable[[], None]) -> int:
    publish()  # connect
    broker.strike_before(None)
    publish()
    return len(broker.passed)


@pytest.mark.parametrize("strike", [Strike.CUT, Strike.SILENCE], ids=lambda strike: strike.name.lower())
def test_a_hint_never_raises_and_never_hangs(broker: Proxy, strike: Strike) -> None:
    count = messages_of(broker, send_claim_hint)
    assert count >= 2
    for number in range(1, count + 1) if strike is Strike.CUT else [1]:
        broker.strike_before(number, strike)
        began = time.monotonic()
        send_claim_hint()
        assert time.monotonic() - began < (CUT_NOTICED if strike is Strike.CUT else SILENCE_NOTICED), number
        assert broker.struck is not None
        broker.strike_before(None)
        send_claim_hint()
    assert waiting(CLAIM_QUEUE) == 1, "one hint waits, and no second beside it"


@pytest.mark.parametrize("strike", [Strike.CUT, Strike.SILENCE], ids=lambda strike: strike.name.lower())
def test_a_stage_message_arrives_or_says_that_it_cannot(broker: Proxy, strike: Strike) -> None:
    count = messages_of(broker, stage)
    assert count >= 2
    sent = waiting(Task.PARSE)
    for number in range(1, count + 1) if strike is Strike.CUT else [1]:
        broker.strike_before(number, strike)
        began = time.monotonic()
        try:
            stage()
            sent += 1
        except OperationalError:
            pass
        assert time.monotonic() - began < (CUT_NOTICED if strike is Strike.CUT else SILENCE_NOTICED), number
        assert broker.struck is not None
        broker.strike_before(None)
        stage()
        sent += 1
    # One whose answer was cut off is sent again: a stage begins once however often it is told.
    assert sent <= waiting(Task.PARSE) <= sent + count


def test_a_broker_that_is_gone_is_reported_and_not_waited_for(broker: Proxy) -> None:
    stage()
    broker.__exit__()
    began = time.monotonic()
    send_claim_hint()
    with pytest.raises(OperationalError):
        stage()
    assert time.monotonic() - began < CUT_NOTICED
