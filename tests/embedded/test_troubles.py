"""What goes wrong on other people's machines ends in one line that says what to do, and in exit code 2."""

import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from embedded.__main__ import main
from embedded.servers import Servers, start
from tests.embedded.conftest import Embedded, assert_nothing_runs

Refused = Callable[..., str]


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Refused:
    """Runs an action that must not succeed; the one line it printed."""

    def refused(*arguments: str | Path) -> str:
        assert main([*map(str, arguments)]) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        return the_only_line(captured.err)

    return refused


def the_only_line(text: str) -> str:
    assert text.count("\n") == 1, text
    assert "Traceback" not in text
    return text.strip()


def test_data_of_another_major_version(tmp_path: Path, refused: Refused) -> None:
    (tmp_path / "postgres").mkdir()
    (tmp_path / "postgres" / "PG_VERSION").write_text("16\n")
    line = refused("up", "--dir", tmp_path)
    assert "was made by PostgreSQL 16, and this is 18." in line
    assert "pg_dump" in line
    assert_nothing_runs(tmp_path)


def test_a_folder_that_is_no_database(tmp_path: Path, refused: Refused) -> None:
    (tmp_path / "postgres").mkdir()
    assert "holds no database of PostgreSQL" in refused("up", "--dir", tmp_path)


def test_a_database_whose_passwords_are_gone(own_servers: Servers, refused: Refused) -> None:
    own_servers.stop()
    passwords = own_servers.root / "postgres.json"
    lost = passwords.rename(own_servers.root / "lost")
    assert "the passwords of" in refused("up", "--dir", own_servers.root)
    lost.rename(passwords)


def test_a_database_made_with_the_wrong_characters(own_servers: Servers, refused: Refused) -> None:
    with own_servers.postgres.connect("postgres") as connection:
        change = "UPDATE pg_database SET datctype = %s WHERE datname = 'holdfast'"
        connection.execute(change, ["C"])
        assert "has LC_CTYPE C, not C.UTF-8" in refused("up", "--dir", own_servers.root)
        connection.execute(change, ["C.UTF-8"])


def test_a_database_newer_than_the_program(own_servers: Servers, refused: Refused) -> None:
    with own_servers.postgres.connect() as connection:
        head = connection.execute("SELECT version_num FROM alembic_version").fetchone()
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
        line = refused("up", "--dir", own_servers.root)
        connection.execute("UPDATE alembic_version SET version_num = %s", head)
    assert "cannot be migrated" in line
    assert "9999" in line


def test_a_damaged_record(tmp_path: Path, refused: Refused) -> None:
    (tmp_path / "postgres.json").write_text("{")
    assert "postgres.json is damaged" in refused("up", "--dir", tmp_path)


def test_a_file_where_the_directory_should_be(tmp_path: Path, refused: Refused) -> None:
    (tmp_path / "file").touch()
    assert "a file is in the way" in refused("up", "--dir", tmp_path / "file")


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield other.getsockname()[1]


@pytest.mark.parametrize(("option", "title"), [("--postgres-port", "PostgreSQL"), ("--valkey-port", "Valkey")])
def test_a_taken_port_that_was_asked_for(
    tmp_path: Path, refused: Refused, taken_port: int, option: str, title: str
) -> None:
    line = refused("up", "--dir", tmp_path, option, str(taken_port))
    assert f"port {taken_port} is taken by another program; stop that, or give {title} another port" in line
    assert_nothing_runs(tmp_path)


def test_a_taken_port_that_was_only_remembered_is_replaced(own_servers: Servers) -> None:
    before = own_servers.env
    ports = [own_servers.postgres.port, own_servers.valkey.port]
    own_servers.stop()
    others = [socket.create_server(("127.0.0.1", port)) for port in ports]
    try:
        again = start(own_servers.root)
    finally:
        for other in others:
            other.close()
    assert again.running
    assert {again.postgres.port, again.valkey.port}.isdisjoint(ports)
    written = (own_servers.root / "env").read_text()
    assert written == "".join(f"{name}={value}\n" for name, value in again.env.items())
    assert before["STORAGE_URL"] == again.env["STORAGE_URL"]


def test_another_port_while_it_runs(own_servers: Servers, refused: Refused) -> None:
    line = refused("up", "--dir", own_servers.root, "--postgres-port", "20000")
    assert f"runs on port {own_servers.postgres.port} already" in line


def test_a_folder_that_may_not_be_written(plain_folder: Path, embedded: Embedded) -> None:
    plain_folder.chmod(0o500)
    ended = embedded("up", "--dir", plain_folder)
    assert ended.returncode == 2
    assert "permission is denied; choose a --dir that this user may write to" in the_only_line(ended.stderr)
    assert list(plain_folder.iterdir()) == []


def test_a_directory_that_another_user_started(open_folder: Path, embedded: Embedded) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can make a directory that belongs to another user")
    with start(open_folder / "roots") as servers:
        ended = embedded("down", "--dir", servers.root)
        assert ended.returncode == 2
        assert "permission is denied" in the_only_line(ended.stderr)
        assert servers.running


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 20 MB, which holds no database."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=20m,mode=0755", "tmpfs", str(disk)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"no file system may be mounted here: {mounted.stderr.decode().strip()}")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.skipif(shutil.which("mount") is None, reason="needs mount")
def test_a_full_disk_is_named_and_making_room_is_enough(small_disk: Path, refused: Refused) -> None:
    assert "the disk is full; free some space and try again" in refused("up", "--dir", small_disk)
    assert_nothing_runs(small_disk)
    subprocess.run(["mount", "-o", "remount,size=300m", str(small_disk)], check=True)
    with start(small_disk) as servers:
        assert servers.running


@pytest.mark.skipif(shutil.which("mount") is None, reason="needs mount")
def test_a_read_only_disk(small_disk: Path, refused: Refused) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    assert "the file system is read-only; choose another --dir" in refused("up", "--dir", small_disk / "dir")
