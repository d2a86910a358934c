"""What `make demo` shows, by the commands that anyone would type."""

import json
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parent.parent
QUESTIONS = ("환불은 언제까지 신청할 수 있나요?", "How do I restore the database from a backup?")


class UnexpectedEnd(Exception):
    """A command ended with another exit code than the tour says."""


def documents(*arguments: str, shown: bool = True, expected: int = 0) -> str:
    """Run ``celery -A tasks documents …``; show its output, or return it.

    Raises:
        UnexpectedEnd: it ended otherwise than expected.
    """
    command = ["celery", "-A", "tasks", "documents", *arguments]
    if shown:
        print(f"\n$ {shlex.join(command)}", flush=True)
    ended = subprocess.run(command, stdout=None if shown else subprocess.PIPE, text=True, cwd=PROJECT)  # noqa: S603
    if ended.returncode != expected:
        raise UnexpectedEnd(f"{shlex.join(command)} ended with {ended.returncode}, not {expected}")
    return ended.stdout or ""


def retried() -> list[dict[str, Any]]:
    """The documents that were retried and became searchable all the same."""
    listed: list[dict[str, Any]] = json.loads(documents("status", "--json", shown=False))["documents"]
    return [document for document in listed if document["status"] == "INDEXED" and document["retryCount"] > 0]


def say(text: str) -> None:
    """One step of the tour."""
    print(f"\n— {text}", flush=True)


def main(arguments: Sequence[str]) -> int:
    """The tour; 0 when everything happened as it says."""
    try:
        say("Korean and English documents of many formats, a corrupt and a password-protected PDF among them. The")
        print("  provider is down for the first request: that document is retried after 10 s, nobody is told.")
        documents("add", "samples", "--wait", expected=1)
        say("Exit code 1: two files failed for good, at their first attempt, since no retry can open them.")
        documents("failures")
        once_failed = retried()
        if not once_failed:
            raise UnexpectedEnd("no document met the provider's outage")
        say(f"{once_failed[0]['name']!r} met the outage, waited 10 s, and went on from the stage where it stopped.")
        documents("history", str(once_failed[0]["id"]))
        say("Search finds passages of complete versions only, in Korean and in English.")
        for question in QUESTIONS:
            documents("search", question, "--limit", "2")
        say("Every rule that PostgreSQL enforces, checked once more from outside.")
        documents("check")
    except UnexpectedEnd as end:
        print(f"\ndemo: {end}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
