"""How an exception becomes a recorded failure: the only place that judges what a stage raised."""

import logging
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from billiard.common import terminate_handler_fired  # type: ignore[attr-defined]  # the stub is older
from billiard.exceptions import SoftTimeLimitExceeded
from celery.exceptions import Retry
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from domain.errors import (
    AttemptConflict,
    AttemptNotCurrent,
    ClaimLost,
    DomainError,
    NotFound,
    StageNotDue,
)
from domain.fail import AttemptFailed, fail_attempt
from domain.failures import Failure, FailureType, StageFailed, clean_error_message
from domain.held import Claim
from domain.statuses import Outcome
from settings import settings
from tasks.database import run_transaction, sqlstate
from tasks.dispatch import wake_if_due
from tasks.messages import send_news_hint
from tasks.requests import NotRegistered

log = logging.getLogger(__name__)

STALE = "stale"  # what a task returns whose claim was lost: somebody else ends that attempt

# The attempt is no longer ours to end, so nothing is recorded.
LOST = (ClaimLost, StageNotDue, AttemptNotCurrent, AttemptConflict, NotFound, NotRegistered)

# What PostgreSQL answers while it, its disk or its locks cannot serve: another time it will.
_UNAVAILABLE = ("08", "53", "57P0")
_UNAVAILABLE_CODES = ("25006", "55P03", "40001", "40P01")
_QUERY_CANCELLED = "57014"


class RunFailed(Exception):
    """What Celery and Flower are told of a failure that is stored already."""


class Run:
    """One run of a stage task, for its log lines and for what Celery shows at its end."""

    def __init__(self, claim: Claim) -> None:
        self.claim = claim
        self.result: str | None = None
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        """How long the run has taken so far."""
        return time.monotonic() - self._began

    def log_moved(self, origin: str, target: str) -> None:
        """One line per transition; call it after the commit."""
        log.info(
            "job_id=%d attempt_id=%d from=%s to=%s elapsed_seconds=%.3f",
            self.claim.job_id,
            self.claim.attempt_id,
            origin,
            target,
            self.seconds,
        )


@contextmanager
def recording_failure(claim: Claim) -> Iterator[Run]:
    """Run a stage; whatever it raises is recorded once, then told to Celery.

    A failure that will be retried is raised as ``Retry``, which sends no message: the row says when. A final
    one is raised as ``RunFailed``. When the claim was lost, nothing is recorded or raised, and ``run.result``
    is ``STALE``.

    Raises:
        Retry, RunFailed: as above; RunFailed also when the database could not be told. The lease then ends
            the attempt.
    """
    run = Run(claim)
    try:
        yield run
    except BaseException as error:  # also SystemExit from a parser: it must not end the child
        if terminate_handler_fired():
            raise  # this process is being ended, by a time limit or a shutdown: its parent reports which
        failure = classify(error)
        if failure is None:
            log.info("job_id=%d attempt_id=%d stale: %s", claim.job_id, claim.attempt_id, error)
            run.result = STALE
            return
        result = record(claim, failure)
        if result is None:
            run.result = STALE
            return
        log_failed(run, result, error)
        if result.next_retry_at is None or result.next_retry_at <= result.failed_at:
            if result.outcome == Outcome.FAILED:
                send_news_hint()
            wake_if_due()
        told = tell(result, shown(failure, error))
        # "from None": the traceback and the text of the cause may hold what the document says.
        raise told from None


def classify(error: BaseException) -> Failure | None:
    """What ``error`` means for the attempt; None when the attempt is no longer ours to end."""
    if isinstance(error, LOST):
        return None
    if isinstance(error, StageFailed):
        return error.failure
    if isinstance(error, SoftTimeLimitExceeded):
        return _internal("the stage ran into its time limit", "TIME_LIMIT")
    if isinstance(error, MemoryError):
        return _internal("the stage ran out of memory", "MEMORY")
    if isinstance(error, DomainError):
        return Failure(FailureType.INDEXING_STATE_INCONSISTENT, f"{type(error).__name__}: {error}")
    if isinstance(error, SQLAlchemyError | psycopg.Error):
        return classify_database_error(error)
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - a broken __str__ must not hide the failure
        text = ""
    return _internal(f"{type(error).__name__}: {text}" if text.strip() else type(error).__name__)


def classify_database_error(error: SQLAlchemyError | psycopg.Error) -> Failure:
    """By the code PostgreSQL gave. The message is its first line: details and parameters may hold text."""
    code = sqlstate(error)
    cause = getattr(error, "orig", None) or error
    diagnosis = getattr(cause, "diag", None)
    message = getattr(diagnosis, "message_primary", None) or (
        type(cause).__name__ if code else f"{type(cause).__name__}: {cause}"
    )
    constraint = getattr(diagnosis, "constraint_name", None)
    if constraint:
        message = f"{constraint}: {message}"
    if code is None:
        unanswered = (OperationalError, InterfaceError, PoolTimeout, psycopg.OperationalError, psycopg.InterfaceError)
        broken = isinstance(error, unanswered) or (isinstance(error, DBAPIError) and error.connection_invalidated)
        if broken:
            return Failure(FailureType.STORAGE_UNAVAILABLE, f"database: {message}", reason="DATABASE")
        return _internal(f"database: {type(error).__name__}")
    if code.startswith("23"):
        return Failure(FailureType.INDEXING_STATE_INCONSISTENT, message)
    if code == _QUERY_CANCELLED:
        return _internal(f"database: {message}", "STATEMENT_TIMEOUT")
    if code.startswith(_UNAVAILABLE) or code in _UNAVAILABLE_CODES:
        return Failure(FailureType.STORAGE_UNAVAILABLE, f"database: {message}", reason="DATABASE")
    return _internal(f"database {code}: {message}")


def record(claim: Claim, failure: Failure) -> AttemptFailed | None:
    """Store the failure; None when the attempt is no longer ours.

    Tried twice: the first connection may be the one that broke, and the soft time limit may strike here as
    anywhere. The repeat is safe, an equal report gets the stored result.

    Raises:
        RunFailed: the database could not be told.
    """
    secrets = settings().secrets
    for last in (False, True):
        try:
            return run_transaction(lambda connection: fail_attempt(connection, claim, failure, secrets))
        except LOST as error:
            log.info("job_id=%d attempt_id=%d stale: %s", claim.job_id, claim.attempt_id, error)
            return None
        except Exception as error:  # noqa: BLE001
            if last:
                why = classify(error)
                log.error(
                    "job_id=%d attempt_id=%d failure_type=%s could not be recorded, its lease will end it: %s",
                    claim.job_id,
                    claim.attempt_id,
                    failure.type,
                    clean_error_message(why.message if why else "", type(error).__name__, secrets),
                )
                raise RunFailed(f"{failure.type} not recorded: the database could not be told") from None
            time.sleep(0.5)
    raise AssertionError("unreachable")


def shown(failure: Failure, error: BaseException) -> str:
    """What logs and Flower may show. Only a stage's own words are known to hold no document text."""
    text = failure.message if isinstance(error, StageFailed) else type(error).__name__
    return clean_error_message(text, failure.type, settings().secrets)[:300]


def tell(result: AttemptFailed, text: str) -> Retry | RunFailed:
    """The exception by which Celery shows a stored failure."""
    kind = f"{result.failure_type} {result.failure_reason}" if result.failure_reason else str(result.failure_type)
    if result.outcome != Outcome.RETRY or result.next_retry_at is None:
        of = f"after attempt {result.retry_count + 1} of {result.max_retry_count + 1}"
        return RunFailed(f"{kind} {of}, not retried: {text}")
    of = f"attempt {result.retry_count} of {result.max_retry_count + 1}"
    delay = max(0, round((result.next_retry_at - result.failed_at).total_seconds()))
    line = f"{kind} {of}, retry in {delay} s: {text}"
    return Retry(line, RunFailed(line), when=delay)  # type: ignore[arg-type]  # the stub takes no int


def log_failed(run: Run, result: AttemptFailed, error: BaseException) -> None:
    """The transition, and for a bug the frames it came through; never its text, which may be the document's."""
    log.warning(
        "job_id=%d attempt_id=%d from=%s to=%s failure_type=%s reason=%s retry_count=%d next_retry_at=%s "
        "elapsed_seconds=%.3f",
        result.job_id,
        result.attempt_id,
        result.failed_stage,
        result.outcome,
        result.failure_type,
        result.failure_reason,
        result.retry_count,
        result.next_retry_at and result.next_retry_at.isoformat(),
        run.seconds,
    )
    if not isinstance(error, StageFailed | SQLAlchemyError):
        frames = "".join(traceback.format_tb(error.__traceback__))
        log.error("job_id=%d attempt_id=%d %s\n%s", result.job_id, result.attempt_id, type(error).__name__, frames)


def _internal(message: str, reason: str | None = None) -> Failure:
    return Failure(FailureType.WORKER_INTERNAL_ERROR, message, reason=reason)
