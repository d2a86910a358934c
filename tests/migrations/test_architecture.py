"""ARCHITECTURE.md names the rules and the functions that there are."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAMES = sorted(set(re.findall(r"`([a-z]+_[a-z_]+)`", (ROOT / "ARCHITECTURE.md").read_text())))
SOURCES = "\n".join(
    path.read_text()
    for pattern in ("migrations/versions/*.sql", "domain/*.py", "tasks/*.py", "stages/*.py", "settings.py")
    for path in ROOT.glob(pattern)
)


@pytest.mark.parametrize("name", NAMES)
def test_every_name_in_the_architecture_is_in_the_code(name: str) -> None:
    assert re.search(rf"\b{name}\b", SOURCES)


def test_the_architecture_stays_short() -> None:
    assert len((ROOT / "ARCHITECTURE.md").read_text().splitlines()) <= 200
