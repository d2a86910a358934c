"""The connection is cut at each message of a transaction: repeated, the call does its work or replays it."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from sqlalchemy import Connection, create_engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from domain.complete import complete_attempt
from domain.fail import fail_attempt
from domain.failures import Failure, FailureType
from domain.statuses import VersionStatus
from tests.conftest import Database, WaitUntil
from tests.domain.indexing import Indexing
from tests.domain.rows import dump, one

TIMED_OUT = Failure(FailureType.STORAGE_UNAVAILABLE, "no answer")
CORRUPT = Failure(FailureType.DOCUMENT_CONTENT_INVALID, "no page can be read", "CORRUPT")
OTHERS = """
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
"""


class Cable:
    """A proxy for one connection at a time, which can be cut at the n-th message that the client sends from now on.

    ``before``: the message is lost. Otherwise the server gets it and its answer is lost.
    """

    def __init__(self, host: str, port: int) -> None:
        self.server = (host, port)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        self.cut_at: int | None = None
        self.before = True
        self.messages = 0
        threading.Thread(target=self.serve, daemon=True).start()

    def cut(self, number: int, before: bool) -> None:
        self.messages, self.cut_at, self.before = 0, number, before

    def serve(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = socket.create_connection(self.server)
            threading.Thread(target=self.answer, args=(server, client), daemon=True).start()
            self.ask(client, server)

    def ask(self, client: socket.socket, server: socket.socket) -> None:
        with client, server:
            while data := receive(client):
                self.messages += 1
                if self.messages == self.cut_at:
                    shut(client)
                    if not self.before:  # the server does as it is told, and its answer finds nobody
                        server.sendall(data)
                        server.shutdown(socket.SHUT_WR)
                        return
                    break
                server.sendall(data)
            shut(server)

    def answer(self, server: socket.socket, client: socket.socket) -> None:
        while data := receive(server):
            with suppress(OSError):
                client.sendall(data)


def receive(end: socket.socket) -> bytes:
    try:
        return end.recv(1 << 20)
    except OSError:
        return b""


def shut(end: socket.socket) -> None:
    """Unlike close, end the connection also while another thread reads from it."""
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def cable(database: Database) -> Iterator[Cable]:
    url = database.app_url
    cable = Cable(str(url.host), int(url.port or 5432))
    yield cable
    cable.listener.close()


def report(kind: str, indexing: Indexing) -> Callable[[Connection], object]:
    indexing.index()
    indexing.upload(content="2")
    claim = indexing.bring_to(VersionStatus.STORING).claim
    if kind == "complete":
        return lambda connection: complete_attempt(connection, claim)
    failure = TIMED_OUT if kind == "fail, to be retried" else CORRUPT
    return lambda connection: fail_attempt(connection, claim, failure)


@pytest.mark.parametrize("before", [True, False], ids=["message lost", "answer lost"])
@pytest.mark.parametrize("kind", ["complete", "fail, to be retried", "fail for good"])
def test_a_report_whose_connection_is_cut_at_any_message_is_written_once(
    committed: Indexing, database: Database, cable: Cable, wait_until: WaitUntil, kind: str, before: bool
) -> None:
    call = report(kind, committed)
    committed.connection.commit()
    untouched = dump(committed.connection)
    committed.connection.rollback()
    engine = create_engine(
        database.app_url.set(host="127.0.0.1", port=cable.port),
        isolation_level="READ COMMITTED",
        poolclass=NullPool,
        connect_args={"sslmode": "disable", "gssencmode": "disable", "options": "-c lock_timeout=20s"},
    )

    def server_has_ended_the_session() -> bool:
        others = one(committed.connection, OTHERS)
        committed.connection.rollback()  # within one transaction the answer would stay the same
        return bool(others == 0)

    written = []
    number = 0
    while True:
        number += 1
        try:
            with engine.connect() as connection:
                cable.cut(number, before)
                call(connection)
                connection.commit()
                break
        except DBAPIError:
            wait_until(server_has_ended_the_session)
        now = dump(committed.connection)
        committed.connection.rollback()
        written.append(now != untouched)
        if now != untouched:
            break

    # Nothing is written before the commit was sent; an answer that is lost after it leaves everything written.
    assert number > 5
    assert written == ([False] * (number - 1) if before else [False] * (number - 1) + [True])
    result = call(committed.connection)
    committed.connection.commit()
    after = dump(committed.connection)
    assert call(committed.connection) == result
    committed.connection.commit()
    assert dump(committed.connection) == after
