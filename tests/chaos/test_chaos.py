"""The short form of ``make chaos``: bursts of harm for a minute, and all that follows from them."""

import pytest

from tests.chaos.clock import LIBRARY, MISSING
from tests.chaos.conftest import SEED
from tests.chaos.provider import MoodyProvider
from tests.chaos.report import as_svg, as_text
from tests.chaos.run import run
from tests.end_to_end.conftest import System

pytestmark = pytest.mark.end_to_end


def test_after_a_minute_of_bursts_of_harm_nothing_is_lost_nothing_twice_and_nothing_stuck(
    system: System, provider: MoodyProvider
) -> None:
    report = run(system, provider, SEED, seconds=60, together=(3, 4), backlog=8)
    page = as_text(report)
    (system.folder / "chaos.txt").write_text(page)
    (system.folder / "chaos.svg").write_text(as_svg(report))
    print(page)
    assert not report.problems, page
    if LIBRARY is None:
        pytest.skip(f"without a wrong clock: {MISSING}")
