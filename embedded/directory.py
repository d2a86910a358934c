"""DIR: what is kept there, who may read it, and who works on it at the moment.

env               what a program needs to use the servers; passwords inside, 0600
postgres/ …       data, owned by the account the servers run as, 0700
postgres.json …   each server's port, passwords and process, 0600
postgres.log …    what each of them printed, 0600
documents/        the default store of uploaded bytes
users.json        the `run` commands that use the servers, and whether `up` asked for them to stay
"""

import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from embedded.errors import EmbeddedError, explain_os_error

# A cold start of another `up` in the same DIR, on a slow and busy disk.
LOCK_LIMIT_SECONDS = 120.0


def open_directory(path: Path) -> Path:
    """Make DIR, unless it is there already: nobody else can list it, or read anything in it.

    A directory that exists is taken as it is; its permissions are its owner's business.
    """
    root = path.expanduser().absolute()
    try:
        if not root.exists():
            root.mkdir(parents=True, mode=0o700)
            if os.geteuid() == 0:
                # The servers' account must pass through to programs that are copied here; it sees no more.
                root.chmod(0o711)
        root = root.resolve()
        make_private_folder(root / "documents")
        return root
    except OSError as error:
        raise explain_os_error(error, root) from None


def find_directory(path: Path) -> Path | None:
    """DIR, if servers were ever started there; nothing is made."""
    root = path.expanduser().absolute()
    try:
        return root.resolve() if (root / "lock").exists() else None
    except OSError as error:
        raise explain_os_error(error, root) from None


def make_private_folder(path: Path) -> None:
    """Make a folder that only this user can enter, unless it is there already."""
    if not path.is_dir():
        path.mkdir(mode=0o700)


@contextmanager
def locked(root: Path) -> Iterator[None]:
    """Hold DIR for one command at a time; the lock ends with the process, however that ends.

    Raises:
        EmbeddedError: another command holds DIR for longer than any start takes.
    """
    try:
        descriptor = os.open(root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise explain_os_error(error, root) from None
    try:
        if not take_lock(descriptor, LOCK_LIMIT_SECONDS):
            raise EmbeddedError(f"another command is still busy in {root}; wait for it or end it, and try again.")
        yield
    finally:
        os.close(descriptor)


def take_lock(descriptor: int, seconds: float) -> bool:
    """Lock an open file or folder for as long as any process has it open; False after ``seconds`` in vain."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)


def write_private(path: Path, text: str) -> None:
    """Replace a file by ``text``, all or nothing, readable for this user only."""
    new = path.with_name(path.name + ".new")
    try:
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            os.fchmod(descriptor, 0o600)  # also when a file of that name was left behind
            file.write(text)
            file.flush()
            os.fsync(descriptor)
        new.replace(path)
    except OSError as error:
        raise explain_os_error(error, path.parent) from None


def write_record(path: Path, record: Mapping[str, Any]) -> None:
    """Replace a file of remembered values."""
    write_private(path, json.dumps(record, indent=2) + "\n")


def read_record(path: Path) -> dict[str, Any]:
    """The remembered values; empty when there are none yet."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise explain_os_error(error, path.parent) from None
    except ValueError:
        record = None
    if not isinstance(record, dict):
        raise EmbeddedError(f"{path} is damaged; restore it from a copy, or start in another --dir.")
    return record


def write_env(root: Path, env: Mapping[str, str]) -> Path:
    """Write DIR/env, one NAME=value a line; no value needs quoting in a shell."""
    path = root / "env"
    write_private(path, "".join(f"{name}={value}\n" for name, value in env.items()))
    return path
