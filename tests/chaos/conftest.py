"""The system of the end-to-end tests, with a provider that has moods."""

from collections.abc import Iterator

import pytest

from tests.chaos.provider import MoodyProvider
from tests.end_to_end.conftest import system

SEED = 20_251_130

__all__ = ["system"]


@pytest.fixture
def provider() -> Iterator[MoodyProvider]:
    with MoodyProvider(SEED).serving() as serving:
        assert isinstance(serving, MoodyProvider)
        yield serving
