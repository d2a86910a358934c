"""The WebSocket: what was missed, then what comes, in order, each once, whatever happens to Redis or to a client."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import httpx
import pytest
from sqlalchemy import text
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from embedded.servers import Servers
from tests.api.conftest import ADMIN_TOKEN, Api, ApiProcess, HttpWorker, Seed, Shared, soon, user_token
from tests.conftest import Engines, WaitUntil
from tests.domain.indexing import Indexing

Listen = Callable[..., ClientConnection]


def url(api: Api, after: str | None = None) -> str:
    return f"ws://127.0.0.1:{api.port}/notifications" + (f"?after={after}" if after else "")


@pytest.fixture
def listen(api: Api) -> Iterator[Listen]:
    """Opens listeners of an owner, closed after the test."""
    with ExitStack() as opened:

        def listen(owner_id: str = "ann", after: str | None = None, **options: Any) -> ClientConnection:
            token = user_token(owner_id, exp=soon(600))
            return opened.enter_context(connect(url(api, after), subprotocols=["bearer", token], **options))  # type: ignore[list-item]

        yield listen


def indexed(name: str) -> Callable[[Indexing], Any]:
    """The step that makes a document of this name searchable."""
    return lambda steps: steps.index(name)


def uploaded(name: str) -> Callable[[Indexing], Any]:
    return lambda steps: steps.upload(name)


def hear(listener: ClientConnection, count: int = 1, limit: float = 30) -> list[dict[str, Any]]:
    return [json.loads(listener.recv(limit)) for _ in range(count)]


def names(heard: list[dict[str, Any]]) -> list[str]:
    return [one["payload"]["name"] for one in heard]


def hears_nothing_more(listener: ClientConnection) -> bool:
    """Longer than a look at the rows takes."""
    try:
        listener.recv(1.5)
    except TimeoutError:
        return True
    return False


def test_a_final_failure_is_told_once_on_an_open_socket_and_a_retried_one_to_nobody(
    listen: Listen, worker: HttpWorker, seed: Seed
) -> None:
    listener = listen()
    assert listener.subprotocol == "bearer"
    seed(lambda steps: (steps.upload("retried.pdf"), steps.upload("failed.pdf")))
    retried, failed = worker.claim(2)
    worker.fail(retried)
    worker.report(failed, "fail", failureType="DOCUMENT_CONTENT_INVALID", failureReason="EMPTY", errorMessage="empty")
    [told] = hear(listener)
    assert told["type"] == "DOCUMENT_FAILED"
    assert told["payload"]["name"] == "failed.pdf"
    assert told["explanation"] == "빈 파일입니다."
    assert hears_nothing_more(listener)


def test_first_comes_what_was_missed_since_the_cursor_then_what_is_new_each_once(
    listen: Listen, seed: Seed, ann: httpx.Client
) -> None:
    for number in range(5):
        seed(indexed(f"{number}"))
    page = ann.get("/notifications", params={"limit": 2}).json()
    assert names(page["notifications"]) == ["0", "1"]
    assert page["complete"] is False
    listener = listen(after=page["cursor"])
    missed = hear(listener, 3)
    assert names(missed) == ["2", "3", "4"]
    seed(lambda steps: steps.index("5"))
    assert names(hear(listener)) == ["5"]
    assert names(hear(listen(after=missed[1]["cursor"]), 2)) == ["4", "5"]
    assert hears_nothing_more(listener)


def test_without_a_cursor_it_begins_with_what_was_not_read(listen: Listen, seed: Seed, ann: httpx.Client) -> None:
    seed(lambda steps: (steps.index("read"), steps.index("unread")))
    [first, _] = ann.get("/notifications").json()["notifications"]
    for _ in range(2):
        assert ann.post(f"/notifications/{first['id']}/read").status_code == 204
    assert ann.get("/notifications").json()["notifications"][0]["readAt"] is not None
    assert names(hear(listen())) == ["unread"]


def test_more_than_a_page_of_missed_ones_comes_whole_and_in_order(
    listen: Listen, seed: Seed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.notifications.PAGE", 4)
    seed(lambda steps: [steps.index(f"{number:02}") for number in range(15)])
    assert names(hear(listen(), 15)) == [f"{number:02}" for number in range(15)]


def test_one_owner_hears_nothing_of_another(listen: Listen, seed: Seed) -> None:
    ann, bob = listen("ann"), listen("bob")
    seed(lambda steps: steps.index("for ann", "ann"))
    seed(lambda steps: steps.index("for bob", "bob"))
    assert names(hear(ann)) == ["for ann"]
    assert names(hear(bob)) == ["for bob"]
    assert hears_nothing_more(ann)


def test_all_listeners_of_an_owner_hear_each_once(listen: Listen, seed: Seed) -> None:
    listeners = [listen() for _ in range(5)]
    for number in range(3):
        seed(indexed(f"{number}"))
    for listener in listeners:
        assert names(hear(listener, 3)) == ["0", "1", "2"]


def test_it_is_told_at_once_and_not_at_the_next_look(listen: Listen, worker: HttpWorker, seed: Seed) -> None:
    listener = listen()
    delays = []
    for number in range(5):
        seed(uploaded(f"{number}"))
        [claim] = worker.claim()
        began = time.monotonic()
        worker.report(claim, "fail", failureType="DOCUMENT_CONTENT_INVALID", errorMessage="x")
        hear(listener)
        delays.append(time.monotonic() - began)
    assert min(delays) < 0.5, delays  # by the hint; a look alone takes half a second in the mean, and one at most


def test_it_is_told_while_redis_is_down_and_after_it_came_back(
    listen: Listen, seed: Seed, servers: Servers, wait_until: WaitUntil
) -> None:
    listener = listen()
    servers.valkey.stop()
    try:
        for number in range(3):
            seed(indexed(f"down {number}"))
        assert names(hear(listener, 3)) == ["down 0", "down 1", "down 2"]
        assert names(hear(listen(), 3)) == ["down 0", "down 1", "down 2"]
    finally:
        servers.valkey.start()
    seed(lambda steps: steps.index("up again"))
    assert names(hear(listener)) == ["up again"]
    assert hears_nothing_more(listener)


def test_it_goes_on_after_the_connections_to_the_database_were_cut(
    listen: Listen, seed: Seed, engines: Engines
) -> None:
    listener = listen()
    seed(lambda steps: steps.index("before"))
    assert names(hear(listener)) == ["before"]
    with engines.superuser.begin() as connection:
        connection.execute(
            text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'holdfast_app'")
        )
    seed(lambda steps: steps.index("after"))
    assert names(hear(listener)) == ["after"]
    assert hears_nothing_more(listener)


def test_a_row_that_commits_late_is_told_although_a_later_one_was_told_before(
    listen: Listen, seed: Seed, engines: Engines
) -> None:
    seed(lambda steps: None)
    listener = listen()
    with engines.app.connect() as slow:
        worker = Indexing(slow)
        worker.index("late")
        seed(lambda steps: steps.index("early"))
        [early] = hear(listener)
        assert early["payload"]["name"] == "early"
        assert hears_nothing_more(listener)
        slow.commit()
    [late] = hear(listener)
    assert late["payload"]["name"] == "late"
    assert late["id"] < early["id"]
    assert names(hear(listen(after=early["cursor"]))) == ["late"]


def test_a_client_that_takes_nothing_holds_up_no_other(listen: Listen, api: Api, seed: Seed) -> None:
    token = user_token("ann", exp=soon(600))
    seed(lambda steps: [steps.index(f"{number}".ljust(1000, "x")) for number in range(20)])
    with closing(socket.create_connection(("127.0.0.1", api.port))) as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        deaf.sendall(
            f"GET /notifications HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
            f"Sec-WebSocket-Protocol: bearer, {token}\r\n\r\n".encode()
        )
        assert len(hear(listen("ann"), 20)) == 20
        listener = listen("bob")
        seed(lambda steps: steps.index("for bob", "bob"))
        assert names(hear(listener)) == ["for bob"]


def test_a_socket_that_vanishes_is_forgotten(api: Api, listen: Listen, wait_until: WaitUntil) -> None:
    def listeners() -> float:
        with api.client() as client:
            lines = client.get("/metrics").text.splitlines()
        return float(next(line for line in lines if line.startswith("holdfast_notification_listeners ")).split()[1])

    before = listeners()
    listener = listen()
    assert listeners() == before + 1
    listener.socket.shutdown(socket.SHUT_RDWR)
    wait_until(lambda: listeners() == before)


def test_what_a_client_sends_means_nothing(listen: Listen, seed: Seed) -> None:
    listener = listen()
    for message in ("hello", "{", b"\x00\xff", "x" * 100_000):
        listener.send(message)
    seed(lambda steps: steps.index("a"))
    assert names(hear(listener)) == ["a"]


@pytest.mark.parametrize(
    "offered",
    [
        [],
        ["bearer"],
        ["bearer", "x"],
        ["bearer", ADMIN_TOKEN],
        ["other", user_token("ann", exp=soon(600))],
        [user_token("ann", exp=soon(600))],
        ["bearer", user_token("ann", exp=soon(-5))],
        ["bearer", user_token("ann", secret="0" * 64)],
        ["bearer", user_token("ann", exp=soon(600)), "third"],
    ],
    # Names of their own: a token differs in each process that collects the tests.
    ids=[
        "nothing",
        "no token",
        "not a token",
        "the admin's",
        "another scheme",
        "no scheme",
        "expired",
        "signed by another",
        "a third word",
    ],
)
def test_a_socket_needs_a_users_token_as_its_protocol(shared: Shared, offered: list[Any]) -> None:
    with pytest.raises(InvalidStatus) as refused, connect(url(shared.api), subprotocols=offered or None):
        pass
    answered = refused.value.response
    assert answered.status_code == 401
    assert json.loads(answered.body or b"")["code"] == "UNAUTHENTICATED"


def test_a_token_in_the_url_opens_nothing(shared: Shared) -> None:
    token = user_token("ann", exp=soon(600))
    with pytest.raises(InvalidStatus), connect(f"{url(shared.api)}?token={token}&access_token={token}"):
        pass


def test_a_socket_with_another_cursor_is_refused(shared: Shared) -> None:
    token = user_token("ann", exp=soon(600))
    with (
        pytest.raises(InvalidStatus) as refused,
        connect(url(shared.api, "nonsense"), subprotocols=["bearer", token]),  # type: ignore[list-item]
    ):
        pass
    assert refused.value.response.status_code == 422


def test_a_socket_ends_with_its_token(shared: Shared) -> None:
    token = user_token("ann", exp=soon(2))
    with connect(url(shared.api), subprotocols=["bearer", token]) as listener:  # type: ignore[list-item]
        with pytest.raises(ConnectionClosed) as closed:
            listener.recv(30)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 4401


def test_one_owner_cannot_take_all_places(shared: Shared, owner: str) -> None:
    token = user_token(owner, exp=soon(600))
    with ExitStack() as opened:
        for _ in range(20):
            opened.enter_context(connect(url(shared.api), subprotocols=["bearer", token]))  # type: ignore[list-item]
        with pytest.raises(InvalidStatus) as refused, connect(url(shared.api), subprotocols=["bearer", token]):  # type: ignore[list-item]
            pass
        assert refused.value.response.status_code == 503
        other = user_token(f"not-{owner}", exp=soon(600))
        opened.enter_context(connect(url(shared.api), subprotocols=["bearer", other]))  # type: ignore[list-item]


def test_none_is_lost_or_told_twice_while_many_documents_are_finished_at_once(
    listen: Listen, engines: Engines, seed: Seed
) -> None:
    seed(lambda steps: None)
    listener = listen()
    each, threads = 8, 4

    def finish(thread: int) -> None:
        for number in range(each):
            seed(indexed(f"{thread}-{number}"))

    working = [threading.Thread(target=finish, args=(thread,)) for thread in range(threads)]
    for thread in working:
        thread.start()
    heard = names(hear(listener, each * threads, 60))
    for thread in working:
        thread.join()
    assert sorted(heard) == sorted(f"{thread}-{number}" for thread in range(threads) for number in range(each))
    assert hears_nothing_more(listener)


def test_a_server_that_stops_closes_its_sockets(api_process: ApiProcess) -> None:
    token = user_token("ann", exp=soon(600))
    with connect(url(api_process), subprotocols=["bearer", token]) as listener:  # type: ignore[list-item]
        api_process.process.terminate()
        with pytest.raises(ConnectionClosed) as closed:
            listener.recv(10)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1012
    api_process.process.wait(10)
