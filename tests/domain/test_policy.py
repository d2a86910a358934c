from datetime import timedelta
from decimal import Decimal

import pytest
from sqlalchemy import Connection

from domain.errors import InvalidRequest, NotFound
from domain.failures import FailureType
from domain.policy import FailurePolicy, read_policies, set_policy
from domain.statuses import Outcome, VersionStatus
from tests.domain.indexing import Indexing

STORAGE = FailureType.STORAGE_UNAVAILABLE
SECONDS = timedelta(seconds=1)


def policy(
    failure_type: str = STORAGE,
    retryable: bool = True,
    base_delay: timedelta = 10 * SECONDS,
    factor: Decimal = Decimal(2),
    max_delay: timedelta = 300 * SECONDS,
) -> FailurePolicy:
    return FailurePolicy(failure_type, retryable, base_delay, factor, max_delay)


def test_every_failure_type_has_a_policy(connection: Connection) -> None:
    assert [found.failure_type for found in read_policies(connection)] == sorted(FailureType)


def test_retries_are_first_set_to_10_20_40_seconds_and_never_over_five_minutes(connection: Connection) -> None:
    assert policy() in read_policies(connection)


def test_a_policy_that_is_set_is_read_back(connection: Connection) -> None:
    changed = policy(retryable=False, base_delay=SECONDS / 2, factor=Decimal("1.5"), max_delay=timedelta(days=30))
    set_policy(connection, changed)
    assert changed in read_policies(connection)
    assert len(read_policies(connection)) == len(FailureType)


def test_a_policy_takes_effect_on_the_next_failure(connection: Connection) -> None:
    indexing = Indexing(connection)
    indexing.upload()
    set_policy(connection, policy(base_delay=SECONDS, factor=Decimal(3)))
    first = indexing.fail(indexing.bring_to(VersionStatus.PARSING))
    assert first.next_retry_at is not None
    assert first.next_retry_at - first.failed_at == SECONDS

    set_policy(connection, policy(retryable=False))
    indexing.upload("other.txt")
    assert indexing.fail(indexing.bring_to(VersionStatus.PARSING)).outcome == Outcome.FAILED


@pytest.mark.parametrize(
    "refused",
    [
        policy(base_delay=-SECONDS),
        policy(factor=Decimal("0.5")),
        policy(factor=Decimal("101")),
        policy(factor=Decimal("NaN")),
        policy(factor=Decimal("Infinity")),
        policy(max_delay=9 * SECONDS),
        policy(max_delay=timedelta(days=31)),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused_and_changes_nothing(
    connection: Connection, refused: FailurePolicy
) -> None:
    before = read_policies(connection)
    with pytest.raises(InvalidRequest):
        set_policy(connection, refused)
    assert read_policies(connection) == before


def test_the_policy_of_an_unknown_failure_type_is_not_found(connection: Connection) -> None:
    with pytest.raises(NotFound, match="failure type SUN_SPOTS does not exist"):
        set_policy(connection, policy("SUN_SPOTS"))
