"""The real app with faults in its stages: ``celery -A tests.end_to_end.faulty_app worker``.

The file that ``FAULTS`` names lists them: ``{"stage": "PARSING", "name": "a.txt", "action": "kill", "times": 1}``.
A name may be a pattern, and ``times`` "always". Which of them already happened is kept beside it, so that a fault
is not repeated by another process.

An action that waits announces itself by the file ``<stage>-<name>.reached`` and goes on when ``….go`` exists.
"""

import ctypes
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from fnmatch import fnmatch
from itertools import repeat
from pathlib import Path
from typing import Any

import stages.parse
import tasks.embed
import tasks.parse
from domain.statuses import VersionStatus
from tasks import app

FAULTS = Path(os.environ["FAULTS"])

__all__ = ["app"]


class Current:
    """The document whose stage this process runs."""

    name = ""


def begin_and_remember(begin: Callable[..., Any]) -> Callable[..., Any]:
    def begun(*arguments: Any, **more: Any) -> Any:
        run = begin(*arguments, **more)
        Current.name = Path(run.name).name
        return run

    return begun


def faulty(stage: VersionStatus, work: Callable[..., Any]) -> Callable[..., Any]:
    """``work`` of that stage, with the fault that is listed for it before."""

    def worked(*arguments: Any, **more: Any) -> Any:
        suffer(stage)
        return work(*arguments, **more)

    return worked


def suffer(stage: VersionStatus) -> None:
    for place, fault in enumerate(json.loads(FAULTS.read_text())):
        meant = fault["stage"] == stage and fnmatch(Current.name, fault["name"])
        if meant and happens(place, fault.get("times", 1)):
            ACTIONS[fault["action"]](stage)


def happens(place: int, times: int | str) -> bool:
    """Count this occurrence; several processes may ask at once."""
    if isinstance(times, str):
        return True
    for number in range(times):
        try:
            (FAULTS.parent / f"fault-{place}-{number}.happened").touch(exist_ok=False)
        except FileExistsError:
            continue
        return True
    return False


def kill(_: VersionStatus) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def segfault(_: VersionStatus) -> None:
    ctypes.string_at(0)


def abort(_: VersionStatus) -> None:
    os.abort()


def exit_at_once(_: VersionStatus) -> None:
    os._exit(3)


def run_out_of_memory(_: VersionStatus) -> None:
    bytearray(1 << 62)


def exhaust_memory(_: VersionStatus) -> None:
    """Take memory until there is none, within a limit that is lifted again: the machine has other work."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), hard))
    hoard = []
    try:
        while True:
            hoard.append(bytes(1 << 20))
    finally:
        hoard.clear()
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def spin(_: VersionStatus) -> None:
    """In native code that never looks at the interpreter again."""
    sum(repeat(0))


def fill_disk(_: VersionStatus) -> None:
    Path("/dev/full").write_bytes(bytes(1 << 20))


def swell(_: VersionStatus) -> None:
    """The next document that is parsed here has a gigabyte of text."""
    extract = reading._extract

    def extract_a_gigabyte(*arguments: Any) -> Any:
        reading._extract = extract
        return replace(extract(*arguments), text="word " * ((1 << 30) // 5))

    reading._extract = extract_a_gigabyte


def exit_process(_: VersionStatus) -> None:
    sys.exit(3)


def recurse(stage: VersionStatus) -> None:
    recurse(stage)


def sleep_deaf(_: VersionStatus) -> None:
    """Neither the soft limit nor anything else gets through, as in native code that holds the interpreter."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    time.sleep(600)


def sleep(_: VersionStatus) -> None:
    time.sleep(600)


def dawdle(_: VersionStatus) -> None:
    time.sleep(4.6)


def wait(stage: VersionStatus) -> None:
    (FAULTS.parent / f"{stage}-{Current.name}.reached").touch()
    while not (FAULTS.parent / f"{stage}-{Current.name}.go").exists():
        time.sleep(0.02)


def refuse_content(_: VersionStatus) -> None:
    from domain.failures import Failure, FailureType, StageFailed

    raise StageFailed(Failure(FailureType.DOCUMENT_CONTENT_INVALID, "refused by the test", "CORRUPT"))


ACTIONS: dict[str, Callable[[VersionStatus], None]] = {
    "kill": kill,
    "segfault": segfault,
    "abort": abort,
    "exit_at_once": exit_at_once,
    "exhaust": exhaust_memory,
    "spin": spin,
    "fill": fill_disk,
    "swell": swell,
    "memory": run_out_of_memory,
    "exit": exit_process,
    "recurse": recurse,
    "sleep": sleep,
    "sleep_deaf": sleep_deaf,
    "dawdle": dawdle,
    "wait": wait,
    "refuse": refuse_content,
}

reading: Any = stages.parse
parsing: Any = tasks.parse
embedding: Any = tasks.embed
parsing.begin_stage = begin_and_remember(parsing.begin_stage)
embedding.begin_stage = begin_and_remember(embedding.begin_stage)
parsing.parse_content = faulty(VersionStatus.PARSING, parsing.parse_content)
parsing.chunk = faulty(VersionStatus.CHUNKING, parsing.chunk)
embedding.record_embeddings = faulty(VersionStatus.EMBEDDING, embedding.record_embeddings)
embedding.complete_attempt = faulty(VersionStatus.STORING, embedding.complete_attempt)
