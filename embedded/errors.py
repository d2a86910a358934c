"""What a person is told when the embedded servers cannot do what was asked."""

import errno
from pathlib import Path


class EmbeddedError(Exception):
    """One line: what happened, and what to do about it. The command exits with 2."""


_REMEDIES = {
    "No space left on device": "the disk is full; free some space and try again",
    "Disk quota exceeded": "the disk quota is used up; free some space and try again",
    "Read-only file system": "the file system is read-only; choose another --dir",
    "Permission denied": "permission is denied; choose a --dir that this user may write to",
    # A root without its rights, as in some containers, can neither give files away nor become another user.
    "Operation not permitted": "it is not permitted; run as a plain user, or as a root with its usual rights",
}


def explain_os_error(error: OSError, directory: Path) -> EmbeddedError:
    """Put an error of the operating system into one line about ``directory``."""
    said = _REMEDIES.get(error.strerror or "")
    if said is None and error.errno in (errno.ENOTDIR, errno.EEXIST):
        said = "a file is in the way; choose another --dir"
    where = error.filename if isinstance(error.filename, str) else directory
    return EmbeddedError(f"{directory} cannot be used: {where}: {said or error.strerror or error}.")


def explain_output(what: str, output: str, directory: Path, log: Path) -> EmbeddedError:
    """Put the last words of a server that did not start into one line.

    Args:
        what: the start of the sentence, for example ``PostgreSQL did not start``.
        output: what it printed; empty when it said nothing.
    """
    for symptom, remedy in _REMEDIES.items():
        if symptom in output:
            return EmbeddedError(f"{what} in {directory}: {remedy}.")
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    telling = [line for line in lines if any(sign in line for sign in ("FATAL", "PANIC", "error:", "Fatal"))]
    last = (telling or lines or ["it said nothing"])[-1]
    return EmbeddedError(f"{what} in {directory}: {last} (all of it: {log})")
