"""The retry policy is data: rows of ``failure_policies``, read by the database each time an attempt fails."""

from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal

from sqlalchemy import Connection, select, update

from domain.errors import InvalidRequest, NotFound
from domain.tables import policies

LONGEST_DELAY = timedelta(days=30)
LARGEST_FACTOR = 100


@dataclass(frozen=True, slots=True)
class FailurePolicy:
    """Whether a type of failure is retried, and when.

    The delay before retry n (from 0) is ``base_delay * factor ** n``, never over ``max_delay``; a provider's
    Retry-After lengthens it up to that. How often is the job's own ``max_retry_count``.
    """

    failure_type: str
    retryable: bool
    base_delay: timedelta
    factor: Decimal
    max_delay: timedelta


def read_policies(connection: Connection) -> list[FailurePolicy]:
    """Every policy, by failure type."""
    rows = connection.execute(select(policies).order_by(policies.c.failure_type))
    return [FailurePolicy(row.failure_type, row.retryable, row.base_delay, row.factor, row.max_delay) for row in rows]


def set_policy(connection: Connection, policy: FailurePolicy) -> None:
    """Change the policy of one failure type, from the next failure on; retries already dated keep their time.

    Raises:
        InvalidRequest: a delay or the factor is out of its range; nothing was written.
        NotFound: there is no such failure type.
    """
    require_sensible(policy)
    changed = connection.execute(
        update(policies)
        .where(policies.c.failure_type == policy.failure_type)
        .values(
            retryable=policy.retryable,
            base_delay=policy.base_delay,
            factor=policy.factor,
            max_delay=policy.max_delay,
        )
    )
    if changed.rowcount != 1:
        raise NotFound("failure type", policy.failure_type)


def require_sensible(policy: FailurePolicy) -> None:
    """The rules that the table's CHECKs hold too, said so that the caller knows what to change."""
    if policy.base_delay < timedelta(0):
        raise InvalidRequest(f"base_delay must not be negative: {policy.base_delay}")
    if not (policy.factor.is_finite() and 1 <= policy.factor <= LARGEST_FACTOR):
        raise InvalidRequest(
            f"factor must be from 1 to {LARGEST_FACTOR}, so that no retry comes sooner: {policy.factor}"
        )
    if policy.max_delay < policy.base_delay:
        raise InvalidRequest(f"max_delay {policy.max_delay} must not be shorter than base_delay {policy.base_delay}")
    if policy.max_delay > LONGEST_DELAY:
        raise InvalidRequest(f"max_delay must not be longer than {LONGEST_DELAY.days} days: {policy.max_delay}")
