"""The system of the end-to-end tests, under attack."""

from tests.end_to_end.conftest import provider, system

__all__ = ["provider", "system"]
