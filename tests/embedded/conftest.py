"""Directories for servers, users to be, and a way to see that nothing is left running."""

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from embedded.directory import take_lock
from embedded.servers import Servers, start

PROJECT = Path(__file__).resolve().parents[2]

Embedded = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def own_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A DIR for the tests of one file, each of which leaves it so that the next can start."""
    root = tmp_path_factory.mktemp("own") / "servers"
    with start(root):
        yield root
    assert_nothing_runs(root)


@pytest.fixture
def own_servers(own_directory: Path) -> Servers:
    """Running servers of this test's own, to be killed, stopped and restarted."""
    return start(own_directory)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """An empty folder that every user can reach; ``tmp_path`` lies below a closed one."""
    folder = Path(tempfile.mkdtemp(prefix="holdfast-", dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def embedded(plain_user: Sequence[str]) -> Embedded:
    """Runs ``python -m embedded`` as a plain user and returns its output and exit code."""

    def embedded(*arguments: str | Path) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [*plain_user, sys.executable, "-m", "embedded", *map(str, arguments)],
            cwd=PROJECT,
            env={"PATH": os.defpath},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return embedded


@pytest.fixture(scope="session")
def plain_account() -> pwd.struct_passwd:
    """The plain user of these tests: whoever runs them, or for root a user that every system has."""
    if os.geteuid() != 0:
        return pwd.getpwuid(os.geteuid())
    return next(entry for entry in pwd.getpwall() if entry.pw_name in ("daemon", "bin") and entry.pw_uid != 0)


@pytest.fixture(scope="session")
def plain_user(plain_account: pwd.struct_passwd) -> Sequence[str]:
    """What to put before a command, so that it runs as a plain user.

    A Python below root's closed home is readable for that user by one capability, which makes nothing writable.
    """
    if os.geteuid() != 0:
        return []
    become = ["setpriv", f"--reuid={plain_account.pw_uid}", f"--regid={plain_account.pw_gid}", "--clear-groups"]
    may_read = ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
    for prefix in (become, become + may_read):
        if not shutil.which("setpriv"):
            break
        tried = subprocess.run([*prefix, sys.executable, "-c", "import psycopg"], capture_output=True, check=False)
        if tried.returncode == 0:
            return prefix
    pytest.skip("root cannot run this Python as another user here")


@pytest.fixture
def plain_folder(open_folder: Path, plain_account: pwd.struct_passwd) -> Path:
    """A folder that belongs to the plain user."""
    folder = open_folder / "theirs"
    folder.mkdir(mode=0o700)
    if os.geteuid() == 0:
        os.chown(folder, plain_account.pw_uid, plain_account.pw_gid)
    return folder


def assert_nothing_runs(root: Path) -> None:
    """No server holds its data folder, and no process was started for this directory."""
    for name in ("postgres", "valkey"):
        if (root / name).exists():
            folder = os.open(root / name, os.O_RDONLY)
            try:
                assert take_lock(folder, 10), f"a server still uses {root / name}"
            finally:
                os.close(folder)
    assert processes_of(root) == []


def processes_of(root: Path) -> list[str]:
    """Command lines of the processes whose environment names this directory: workers and commands of ``run``."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if str(root).encode() in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_text().replace("\0", " "))
        except (OSError, ValueError):  # it ended meanwhile, or is another user's
            continue
    return found
