"""What the papers say of the tests is true."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAPERS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])


def tests_of_this_repository() -> set[str]:
    """The name of every test function."""
    return {
        node.name
        for path in (ROOT / "tests").rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    }


@pytest.mark.parametrize("paper", PAPERS, ids=lambda path: path.name)
def test_every_test_that_a_paper_names_exists(paper: Path) -> None:
    named = set(re.findall(r"`(test_\w+)`", paper.read_text()))
    assert not named - tests_of_this_repository()


def test_every_case_has_one_row() -> None:
    ids = re.findall(r"(?m)^\| ([TB]-\d+) ", (ROOT / "docs/cases.md").read_text())
    assert len(ids) == len(set(ids)) == 124
