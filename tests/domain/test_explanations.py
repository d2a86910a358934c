import pytest

from domain.explanations import OF_REASON, OF_TYPE, Explanation, explain
from domain.failures import FailureType

EVERY_REASON = [
    *("SOURCE_CHANGED", "ACCESS_REFUSED", "DATABASE", "SOURCE_MISSING", "SOURCE_REFUSED", "PASSWORD_REQUIRED"),
    *("CORRUPT", "NO_TEXT", "EMPTY", "ENCODING_UNKNOWN", "TOO_LARGE", "TOO_MANY_CHUNKS", "ARCHIVE_UNSAFE"),
    *("UNSUPPORTED_TYPE", "RATE_LIMITED", "PROVIDER_AUTH", "MODEL_UNAVAILABLE"),
    *("LEASE_EXPIRED", "WORKER_KILLED", "TIME_LIMIT"),
]


def is_korean(sentence: str) -> bool:
    return any("가" <= character <= "힣" for character in sentence)


@pytest.mark.parametrize("failure_type", FailureType)
def test_every_failure_type_is_explained_in_korean_and_in_english(failure_type: FailureType) -> None:
    found = explain(failure_type, None)
    assert is_korean(found.korean)
    assert found.english.isascii()


@pytest.mark.parametrize("reason", EVERY_REASON)
def test_every_known_reason_is_explained_in_words_of_its_own(reason: str) -> None:
    found = explain(FailureType.WORKER_INTERNAL_ERROR, reason)
    assert found is OF_REASON[reason]
    assert is_korean(found.korean)
    assert found.english.isascii()


def test_no_two_failures_are_explained_alike() -> None:
    explanations: list[Explanation] = [*OF_REASON.values(), *OF_TYPE.values()]
    assert len({found.korean for found in explanations}) == len(explanations)
    assert len({found.english for found in explanations}) == len(explanations)


def test_an_unknown_reason_is_explained_by_its_type_and_an_unknown_type_as_an_internal_error() -> None:
    assert explain("STORAGE_UNAVAILABLE", "SOMETHING_NEW") is OF_TYPE["STORAGE_UNAVAILABLE"]
    assert explain("SOMETHING_NEW", None) is OF_TYPE["WORKER_INTERNAL_ERROR"]
