"""Signals to end: remembered and passed on, so that nothing is torn down in the middle of a step."""

import os
import signal
import subprocess
import time
from types import FrameType, TracebackType
from typing import Any, Self

# A command that was told to end and does not is killed after this; an orchestrator kills this program later still.
COMMAND_GRACE_SECONDS = 8.0


class Signals:
    """While open, SIGINT, SIGTERM and SIGHUP end nothing by themselves; they are for the code inside to see."""

    def __init__(self) -> None:
        self.received: list[signal.Signals] = []
        self._told_at: float | None = None
        self._command: subprocess.Popen[bytes] | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) != signal.SIG_IGN:  # nohup
                self._before[number] = signal.signal(number, self._receive)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @property
    def exit_code(self) -> int:
        """What a shell reports for a program that the first signal ended."""
        return 128 + self.received[0]

    def pass_on_to(self, command: subprocess.Popen[bytes]) -> None:
        """From now on the command gets these signals too, those already received included."""
        self._command = command
        for number in list(self.received):
            self._pass_on(number)

    @property
    def command_is_late(self) -> bool:
        """Whether the command was told to end (not only interrupted) twice, or too long ago."""
        told = sum(number != signal.SIGINT for number in self.received)
        waited = 0.0 if self._told_at is None else time.monotonic() - self._told_at
        return told > 1 or waited > COMMAND_GRACE_SECONDS

    def _receive(self, number: int, _: FrameType | None) -> None:
        self.received.append(signal.Signals(number))
        self._pass_on(signal.Signals(number))

    def _pass_on(self, number: signal.Signals) -> None:
        if self._command is None:
            return
        if number == signal.SIGINT and _terminal_told_everyone():
            return
        if number != signal.SIGINT and self._told_at is None:
            self._told_at = time.monotonic()
        self._command.send_signal(number)


def _terminal_told_everyone() -> bool:
    """Whether Ctrl-C reaches the command by itself, as the terminal sends it to the whole foreground group.

    To a Celery worker a second one means: drop everything.
    """
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
