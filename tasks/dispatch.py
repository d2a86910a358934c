"""Claimed stages on their way to a worker: sent after the commit, given back when they cannot be sent."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from kombu.exceptions import OperationalError

from domain.errors import DomainError
from domain.held import Claim
from domain.release import release_attempt
from domain.statuses import Task
from domain.wake import work_is_due
from tasks.database import run_transaction
from tasks.messages import send_claim_hint, send_stage

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Dispatch:
    """A claim that waits for its stage message. ``label`` is what Flower shows."""

    task: Task
    claim: Claim
    label: str


def dispatch(waiting: Iterable[Dispatch]) -> None:
    """Send each stage message; give those back that could not be sent, due at once and no retry counted.

    One that cannot be sent does not keep the others back. Once the broker is gone, the rest is not tried:
    each try would wait for its timeout.
    """
    broker_gone = False
    for one in waiting:
        if not broker_gone:
            try:
                send_stage(one.task, one.claim, one.label)
                continue
            except OperationalError as error:
                broker_gone = True
                log.warning("the broker cannot be reached: %s", type(error).__name__)
            except Exception:
                log.exception("job_id=%d its message could not be sent", one.claim.job_id)
        give_back(one.claim)


def wake_if_due() -> None:
    """At the end of a job its place is free: ask for a claim, if anything is due. Never raises."""
    try:
        due = run_transaction(lambda connection: work_is_due(connection, tuple(Task)))
    except Exception as error:  # noqa: BLE001 - the supervisors ask again within a second
        log.warning("what is due is not known: %s", type(error).__name__)
        return
    if due:
        send_claim_hint()


def give_back(claim: Claim) -> None:
    """Release a claim that nobody would hear of. Never raises: its dispatch lease ends it otherwise."""
    try:
        run_transaction(lambda connection: release_attempt(connection, claim))
        log.warning("job_id=%d attempt_id=%d released unsent", claim.job_id, claim.attempt_id)
    except DomainError as error:
        log.info("job_id=%d attempt_id=%d not released: %s", claim.job_id, claim.attempt_id, error)
    except Exception as error:  # noqa: BLE001 - the others must still be sent or given back
        log.error("job_id=%d attempt_id=%d not released: %s", claim.job_id, claim.attempt_id, type(error).__name__)
