"""What the papers say of the tests is true."""

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAPERS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])


@cache
def existing() -> set[str]:
    """The name of every test function of this repository."""
    sources = (path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    return {name for source in sources for name in re.findall(r"(?m)^(?:async )?def (test_\w+)\(", source)}


@pytest.mark.parametrize("paper", PAPERS, ids=lambda path: path.name)
def test_every_test_that_a_paper_names_exists(paper: Path) -> None:
    named = set(re.findall(r"`(test_\w+)`", paper.read_text()))
    assert not named - existing()


def test_every_case_has_one_row() -> None:
    ids = re.findall(r"(?m)^\| ([TB]-\d+) ", (ROOT / "docs/cases.md").read_text())
    assert len(ids) == len(set(ids)) == 124
