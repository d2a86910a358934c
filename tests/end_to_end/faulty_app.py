"""The real app with faults in its stages: ``celery -A tests.end_to_end.faulty_app worker``.

The file that ``FAULTS`` names lists them: ``{"stage": "PARSING", "name": "a.txt", "action": "kill", "times": 1}``.
Which of them already happened is kept beside it, so that a fault is not repeated by another process.

An action that waits announces itself by the file ``<stage>-<name>.reached`` and goes on when ``….go`` exists.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
        if fault["stage"] == stage and fault["name"] == Current.name and happens(place, fault.get("times", 1)):
            ACTIONS[fault["action"]](stage)


def happens(place: int, times: int) -> bool:
    """Count this occurrence; several processes may ask at once."""
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
    os.kill(os.getpid(), signal.SIGSEGV)


def run_out_of_memory(_: VersionStatus) -> None:
    bytearray(1 << 62)


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
    "memory": run_out_of_memory,
    "exit": exit_process,
    "recurse": recurse,
    "sleep": sleep,
    "sleep_deaf": sleep_deaf,
    "dawdle": dawdle,
    "wait": wait,
    "refuse": refuse_content,
}

parsing: Any = tasks.parse
embedding: Any = tasks.embed
parsing.begin_stage = begin_and_remember(parsing.begin_stage)
embedding.begin_stage = begin_and_remember(embedding.begin_stage)
parsing.parse_content = faulty(VersionStatus.PARSING, parsing.parse_content)
parsing.chunk = faulty(VersionStatus.CHUNKING, parsing.chunk)
embedding.record_embeddings = faulty(VersionStatus.EMBEDDING, embedding.record_embeddings)
embedding.complete_attempt = faulty(VersionStatus.STORING, embedding.complete_attempt)
