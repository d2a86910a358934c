"""Two sessions: one waits in the background for a lock of the other."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from tests.conftest import WaitUntilBlocked
from tests.database.refusals import rule_of


@contextmanager
def blocked(
    action: Callable[[], object], connection: Connection, wait_until_blocked: WaitUntilBlocked
) -> Iterator["Future[object]"]:
    """Run the action of a session in the background; inside, the session waits for another one's lock."""
    with ThreadPoolExecutor(1) as background:
        running = background.submit(action)
        wait_until_blocked(connection)
        yield running


def refusal(running: "Future[object]") -> str | None:
    """The rule by which the session that waited was refused."""
    error = running.exception(timeout=30)
    assert isinstance(error, DBAPIError), error
    return rule_of(error)
