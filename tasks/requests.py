"""The two sides of a running stage: the request in the worker's main process, the task in its pool child."""

import queue
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from time import monotonic
from typing import Any
from uuid import UUID

from celery import Task
from celery.exceptions import InvalidTaskError, Terminated, TimeLimitExceeded, WorkerLostError
from celery.worker import state
from celery.worker.request import Request

from domain.failures import Failure, FailureType
from domain.held import Claim
from settings import settings


class NotClaimed(Exception):
    """The message carries no claim: only ``tasks.claim`` and ``tasks.parse`` send stage messages."""


class NotRegistered(Exception):
    """The worker has no row yet, so nothing can be begun in its name; the claim is given back as a lost one."""


@dataclass
class ThisWorker:
    """What the main process knows about itself. Its supervisor thread fills and empties it.

    ``id`` is the row of this start of the worker, None until the database could be reached.
    """

    id: int | None = None
    lost: queue.SimpleQueue[tuple[Claim, Failure]] = field(default_factory=queue.SimpleQueue)
    interrupted: queue.SimpleQueue[Claim] = field(default_factory=queue.SimpleQueue)
    accepted_at: float = field(default_factory=monotonic)  # when a child last took a message


this_worker = ThisWorker()


def claim_headers(claim: Claim) -> dict[str, Any]:
    """Headers are shown by no event, no ``inspect`` and no page of Flower; arguments are."""
    return {"claim": str(claim.token), "attempt": claim.attempt_id, "worker": claim.worker_id}


def read_claim(headers: Mapping[str, Any], job_id: object) -> Claim | None:
    """The claim that a message carries; None when it carries none."""
    try:
        return Claim(
            job_id=int(str(job_id)),
            attempt_id=int(headers["attempt"]),
            worker_id=int(headers["worker"]),
            token=UUID(headers["claim"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


class StageRequest(Request):
    """A message on its way through the main process. Never touches the database: this is the event loop."""

    def __init__(self, message: Any, **options: Any) -> None:
        try:
            super().__init__(message, **options)
            if not isinstance(self.id, str) or not isinstance(self.args, list) or not isinstance(self.kwargs, dict):
                raise InvalidTaskError("its id, its arguments or its keywords are of another kind")
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            # Celery discards a message for this error, and for these ends the event loop and puts it back.
            raise InvalidTaskError(f"it is not shaped as a task: {type(error).__name__}") from None
        # Limits and times are the settings', not the sender's: a child must not get more time from a message.
        self.time_limits = (None, None)
        self._eta = self._expires = None
        self.claim = read_claim(self.request_dict, self.args[0] if self.args else None)
        self.accepted_at: float | None = None
        # The child learns from here which worker it belongs to: the id may come after the fork.
        self.request_dict["run_by"] = this_worker.id

    @property
    def argsrepr(self) -> str:
        """What Flower shows in place of the arguments: the sender's words, and who runs it."""
        words = super().argsrepr
        return words if self.claim is None else f"{words} worker={this_worker.id}"

    @property
    def pid(self) -> int | None:
        """The child that runs it."""
        return None if self.worker_pid is None else int(self.worker_pid)

    def on_accepted(self, pid: Any, time_accepted: float) -> None:
        self.accepted_at = this_worker.accepted_at = monotonic()
        super().on_accepted(pid, time_accepted)

    def on_failure(self, exc_info: Any, send_failed_event: bool = True, return_ok: bool = False) -> None:
        """Also hand over the claim when the child died: nobody else can report it.

        Called once for every way a child can die; the ``task_failure`` signal comes never, once or twice.
        """
        error = getattr(exc_info.exception, "exc", None) or exc_info.exception  # billiard wraps what it raises itself
        failure = None if return_ok or self._interrupted else death(error)
        if failure is not None and self.claim is not None:
            this_worker.lost.put((self.claim, failure))
            exc_info.exception = error  # Flower then names it, instead of ExceptionWithTraceback()
        super().on_failure(exc_info, send_failed_event=send_failed_event, return_ok=return_ok)

    def cancel(self, pool: Any, signal: Any = None, emit_retry: bool = True) -> None:
        """Shutdown interrupts the stage: its job is given back."""
        super().cancel(pool, signal, emit_retry)
        if self.claim is not None:
            this_worker.interrupted.put(self.claim)

    @property
    def _interrupted(self) -> bool:
        return bool(state.should_terminate) or bool(getattr(self, "_already_cancelled", False))


def death(exc: BaseException) -> Failure | None:
    """How the main process reports a child that cannot report itself; None when it could."""
    if isinstance(exc, TimeLimitExceeded):
        seconds = exc.args[0] if exc.args else "?"
        return Failure(FailureType.WORKER_INTERNAL_ERROR, f"stopped after its {seconds} s", reason="TIME_LIMIT")
    if isinstance(exc, WorkerLostError | SystemExit | Terminated):
        return Failure(FailureType.WORKER_INTERNAL_ERROR, f"the process died: {exc}", reason="WORKER_KILLED")
    return None


class StageTask(Task[Any, Any]):
    """What a task can ask about its message."""

    Request = "tasks.requests:StageRequest"

    @property
    def worker_id(self) -> int:
        """The worker that runs this.

        Raises:
            NotRegistered: it has not reached the database since it started.
        """
        run_by = self.request.get("run_by")
        if run_by is None:
            raise NotRegistered("this worker has not reached the database since it started")
        return int(run_by)

    @property
    def lease(self) -> timedelta:
        """How long a stage may run without its worker renewing the claim."""
        return timedelta(seconds=settings().lease_seconds)

    @property
    def hard_seconds(self) -> int:
        """After this its process is killed; set in celeryconfig.py."""
        return int(self.time_limit or 0)

    @property
    def soft_seconds(self) -> int:
        """After this it is interrupted by an exception."""
        return int(self.soft_time_limit or 0)

    def claim_of(self, job_id: int) -> Claim:
        """The claim in the message's headers.

        Raises:
            NotClaimed: a message written by hand.
        """
        claim = read_claim(vars(self.request), job_id)
        if claim is None:
            raise NotClaimed(f"{self.name} runs only with the claim that tasks.claim sends; use tasks.enqueue_document")
        return claim
