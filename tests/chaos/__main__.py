"""``python -m tests.chaos [--minutes 30] [--seed N] [--report chaos-report]``: the long form.

Writes the page as ``<report>.txt`` and ``<report>.svg``; the workers' logs stay in a folder that it names when
something is wrong. Exit code 1: something is.
"""

import argparse
import os
import secrets
import sys
import tempfile
from pathlib import Path

from embedded.postgres import DATABASE
from embedded.servers import start
from tests.chaos.clock import LIBRARY, MISSING
from tests.chaos.provider import MoodyProvider
from tests.chaos.report import as_svg, as_text
from tests.chaos.run import run
from tests.conftest import Database, Engines
from tests.end_to_end.conftest import System


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--minutes", type=float, default=30.0)
    arguments.add_argument("--seed", type=int, default=None)
    arguments.add_argument("--report", type=Path, default=Path("chaos-report"))
    given = arguments.parse_args()
    seed = secrets.randbelow(1_000_000) if given.seed is None else given.seed
    print(
        f"{given.minutes:g} minutes of chaos with seed {seed}" + ("" if LIBRARY else f"; clocks are right: {MISSING}")
    )
    folder = Path(tempfile.mkdtemp(prefix="holdfast-chaos-"))
    (folder / "store").mkdir()
    with start(folder / "servers") as servers, MoodyProvider(seed).serving() as provider:
        assert isinstance(provider, MoodyProvider)
        kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        environment = servers.env | {"STORAGE_URL": (folder / "store").as_uri(), "PYTHONUNBUFFERED": "1"}
        engines = Engines.of(Database.of(servers, DATABASE))
        system = System(servers, engines.app, kept | environment | provider.environment, provider, folder)
        try:
            report = run(system, provider, seed, given.minutes * 60)
        finally:
            system.kill_workers()
    page = as_text(report)
    given.report.with_suffix(".txt").write_text(page)
    given.report.with_suffix(".svg").write_text(as_svg(report))
    print(page)
    if report.problems:
        print(f"What the workers said is in {folder}", file=sys.stderr)
    return 1 if report.problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
