"""A wrong clock for one worker, by libfaketime (Debian: ``faketime``): steps while it runs, in both directions."""

from pathlib import Path

LIBRARY = next(iter(sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))), None)
MISSING = "no libfaketime on this machine (Debian: apt install faketime)"


class Clock:
    """What a worker takes for the time; right until it is set."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "faketime"
        self.set(0)

    def set(self, seconds: int) -> None:
        """Be this many seconds ahead of the true time from now on."""
        new = self._file.with_suffix(".new")
        new.write_text(f"{seconds:+d}\n")
        new.rename(self._file)

    @property
    def environment(self) -> dict[str, str]:
        """What makes a process see this clock. Its monotonic clock stays right, as a machine's does."""
        return {
            "LD_PRELOAD": str(LIBRARY),
            "PYTHONPATH": str(Path(__file__).parent / "skewed"),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_DISABLE_SHM": "1",  # a child that is killed would keep the lock on it
        }
