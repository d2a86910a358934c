"""Who needs the servers of DIR. Read and changed only while DIR is locked."""

import os
from pathlib import Path
from typing import Any

from embedded.directory import read_record, write_record
from embedded.errors import EmbeddedError
from embedded.processes import Process

DEFAULT_ACCOUNT = "nobody"


class Usage:
    """What DIR/servers.json says."""

    def __init__(self, root: Path) -> None:
        self._file = root / "servers.json"
        self._record: dict[str, Any] = {"kept": False, "runs": [], **read_record(self._file)}

    def account_name(self, asked: str | None) -> str:
        """The user that the servers run as when root starts them; the first start decides, as his data stays.

        Raises:
            EmbeddedError: another one is asked for now.
        """
        if "account" not in self._record:
            self._remember(account=asked or DEFAULT_ACCOUNT)
        name = self._record["account"]
        if asked not in (None, name):
            raise EmbeddedError(f"the data of {self._file.parent} belongs to user {name}; leave out --user {asked}.")
        return str(name)

    def keep(self, kept: bool) -> None:
        """Whether the servers are to stay up when the last `run` ends."""
        if self._record["kept"] != kept:
            self._remember(kept=kept)

    def enter(self, worker: Process) -> None:
        """Note that this process uses the servers, with this worker; again when it has another worker."""
        me = Process.of(os.getpid())
        assert me is not None  # noqa: S101 (this process exists)
        others = [run for run in self._record["runs"] if run["run"]["pid"] != me.pid]
        self._remember(runs=[*others, {"run": vars(me), "worker": vars(worker)}])

    def leave(self) -> None:
        """Note that this process no longer does."""
        self._remember(runs=[run for run in self._record["runs"] if run["run"]["pid"] != os.getpid()])

    @property
    def runs(self) -> list[Process]:
        """The `run` commands that use the servers now."""
        return [run for run in (Process(**entry["run"]) for entry in self._record["runs"]) if run.alive]

    @property
    def needed(self) -> bool:
        """Whether anybody wants the servers to stay."""
        return bool(self._record["kept"] or self.runs)

    def take_orphans(self) -> list[Process]:
        """Workers whose `run` was killed; they are no longer noted afterwards."""
        gone = [entry for entry in self._record["runs"] if not Process(**entry["run"]).alive]
        if gone:
            self._remember(runs=[entry for entry in self._record["runs"] if entry not in gone])
        return [worker for worker in (Process(**entry["worker"]) for entry in gone) if worker.alive]

    def _remember(self, **values: Any) -> None:
        self._record.update(values)
        write_record(self._file, self._record)
