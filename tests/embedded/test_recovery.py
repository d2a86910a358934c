"""Starting again after everything that can happen to servers."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from embedded import server
from embedded.directory import read_record, write_record
from embedded.errors import EmbeddedError
from embedded.processes import dropped_to
from embedded.servers import Servers, start
from tests.embedded.conftest import PROJECT


def remember(servers: Servers) -> None:
    with servers.postgres.connect() as connection:
        connection.execute("DROP TABLE IF EXISTS remembered")
        connection.execute("CREATE TABLE remembered AS SELECT 1 AS number")
    servers.valkey.command("SET", "remembered", "1")


def assert_remembered(servers: Servers) -> None:
    with servers.postgres.connect() as connection:
        assert connection.execute("SELECT number FROM remembered").fetchall() == [(1,)]
    assert servers.valkey.command("STRLEN", "remembered") == ":1"


def end_both_cleanly(servers: Servers) -> None:
    servers.stop()


def end_both_by_sigkill(servers: Servers) -> None:
    servers.postgres.kill()
    servers.valkey.kill()


def end_postgresql_immediately(servers: Servers) -> None:
    servers.postgres.stop("immediate")


def end_valkey_by_sigkill(servers: Servers) -> None:
    servers.valkey.kill()


@pytest.mark.parametrize(
    "end", [end_both_cleanly, end_both_by_sigkill, end_postgresql_immediately, end_valkey_by_sigkill]
)
def test_the_next_start_finds_everything_at_the_same_address(
    own_servers: Servers, end: Callable[[Servers], None]
) -> None:
    remember(own_servers)
    address = own_servers.env
    end(own_servers)
    assert not own_servers.running
    again = start(own_servers.root)
    assert again.running
    assert again.env == address
    assert_remembered(again)


def test_each_server_restarts_by_itself(own_servers: Servers) -> None:
    remember(own_servers)
    database, broker = own_servers.postgres.process, own_servers.valkey.process
    own_servers.postgres.stop()
    own_servers.postgres.start()
    assert own_servers.postgres.process != database
    assert own_servers.valkey.process == broker
    own_servers.valkey.stop()
    own_servers.valkey.start()
    assert own_servers.valkey.process != broker
    assert_remembered(own_servers)


def test_flushing_forgets_every_message(own_servers: Servers) -> None:
    own_servers.valkey.command("SET", "message", "1")
    own_servers.valkey.flush()
    assert own_servers.valkey.command("DBSIZE") == ":0"


def test_a_stranger_that_has_an_old_pid_is_neither_waited_for_nor_ended(own_servers: Servers) -> None:
    end_both_by_sigkill(own_servers)
    account = own_servers.postgres.account
    with subprocess.Popen(["sleep", "1000"], **dropped_to(account)) as stranger:
        try:
            pid_file = own_servers.postgres.data / "postmaster.pid"
            lines = pid_file.read_text().split("\n")
            pid_file.write_text("\n".join([str(stranger.pid), *lines[1:]]))
            for name in ("postgres", "valkey"):
                file = own_servers.root / f"{name}.json"
                record = read_record(file)
                record["process"]["pid"] = stranger.pid
                write_record(file, record)

            again = start(own_servers.root)
            assert again.running
            again.stop()
            assert stranger.poll() is None
        finally:
            stranger.kill()


def test_a_folder_never_has_two_servers(own_servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "DATA_LOCK_SECONDS", 0.1)
    for name in ("postgres", "valkey"):
        running = getattr(own_servers, name).process
        file = own_servers.root / f"{name}.json"
        write_record(file, {**read_record(file), "process": None})
        with pytest.raises(EmbeddedError, match=f"another server still uses .*{name}.*fuser"):
            start(own_servers.root)
        assert running.alive
        write_record(file, {**read_record(file), "process": vars(running)})


def test_an_interrupted_first_start_leaves_nothing_in_the_way(tmp_path: Path) -> None:
    half_made = tmp_path / "postgres.new"
    half_made.mkdir()
    (half_made / "PG_VERSION").write_text("18\n")
    with start(tmp_path) as servers:
        assert servers.running
        assert not half_made.exists()


def test_two_starts_at_once_make_one_pair_of_servers(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "embedded", "up", "--dir", str(tmp_path)]
    children = [subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = [child.communicate(timeout=120)[0] for child in children]
    try:
        assert [child.returncode for child in children] == [0, 0]
        assert sorted("already running" in text for text in said) == [False, True]
    finally:
        start(tmp_path).stop()
