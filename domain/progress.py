"""How far a version is: its stage, its job, its last error and the times of its stages, as parts of a statement."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from sqlalchemy import ARRAY, ColumnElement, FromClause, Interval, RowMapping, Select, Text, case, func, select, true
from sqlalchemy.dialects.postgresql import aggregate_order_by

from domain.explanations import Explanation, explain
from domain.statuses import AttemptStatus, JobStatus, Task, VersionStatus
from domain.tables import JOB_IS_LIVE, TIME, attempts, events, jobs, versions, workers

RECENT_EVENTS = 200  # of a document, among which the times of its stages are looked for


class JobState(StrEnum):
    """Where a live job is, in the words of someone who waits for it."""

    WAITING = "waiting"  # for a worker: due, or claimed and not begun
    RUNNING = "running"
    RETRY_LATER = "retry later"  # not before next_retry_at


@dataclass(frozen=True, slots=True)
class LastError:
    """The last failure of a version: in words for its owner, in detail for the operator."""

    failure_type: str
    failure_reason: str | None
    error_message: str
    failed_at: datetime
    explanation: Explanation


@dataclass(frozen=True, slots=True)
class VersionProgress:
    """A version on its way, or where it stopped, with its last job.

    ``stage`` is the one it is in, or stopped in. ``attempt`` n of ``max_attempts`` m: n is the retries so far + 1.
    ``chunks_embedded`` and ``chunks_total`` are None until the text is chunked, so never 0 of 0.
    ``state`` and what follows from it are None once the job has ended: ``queued_since`` while WAITING,
    ``worker_name`` and ``stage_started_at`` while RUNNING. ``last_error`` outlives a manual retry, until INDEXED.
    """

    version_id: int
    version_no: int
    status: VersionStatus
    stage: VersionStatus
    task: Task
    job_id: int
    state: JobState | None
    attempt: int
    max_attempts: int
    chunks_embedded: int | None
    chunks_total: int | None
    queued_since: datetime | None
    next_retry_at: datetime | None
    worker_name: str | None
    stage_started_at: datetime | None
    last_error: LastError | None


@dataclass(frozen=True, slots=True)
class StageTime:
    """A finished stage and the time from its claim, or from the stage before it, to its end.

    The wait for a worker's place is in it; the wait for a retry, and attempts that failed, are not.
    """

    stage: VersionStatus
    finished_at: datetime
    elapsed: timedelta


def newest_live_version(document: FromClause) -> Select[Any]:
    return (
        job_progress()
        .where(jobs.c.document_id == document.c.id, JOB_IS_LIVE)
        .order_by(versions.c.version_no.desc())
        .limit(1)
    )


def newest_version(document: FromClause) -> Select[Any]:
    of_document = versions.alias("of_document")
    newest = (
        select(of_document.c.id)
        .where(of_document.c.document_id == document.c.id)
        .order_by(of_document.c.version_no.desc())
        .limit(1)
        .correlate(document)
        .scalar_subquery()
    )
    return job_progress().where(jobs.c.version_id == newest).order_by(jobs.c.id.desc()).limit(1)


def job_progress() -> Select[Any]:
    """A job with its version, its running attempt and the last error of any job of the version."""
    failed = jobs.alias("failed")
    last_error = (
        select(
            failed.c.last_failure_type,
            failed.c.last_failure_reason,
            failed.c.last_error_message,
            failed.c.last_failed_at,
        )
        .where(failed.c.version_id == jobs.c.version_id, failed.c.last_failed_at.is_not(None))
        .order_by(failed.c.id.desc())
        .limit(1)
        .lateral("last_error")
    )
    state = case(
        (~JOB_IS_LIVE, None),
        (attempts.c.stage_started_at.is_not(None), JobState.RUNNING),
        ((jobs.c.status == JobStatus.PENDING) & (jobs.c.due_at > func.clock_timestamp()), JobState.RETRY_LATER),
        else_=JobState.WAITING,
    )
    return (
        select(
            versions.c.id.label("version_id"),
            versions.c.version_no,
            versions.c.status,
            versions.c.stopped_stage,
            versions.c.chunk_count,
            versions.c.embedding_count,
            jobs.c.id.label("job_id"),
            jobs.c.task,
            state.label("state"),
            jobs.c.retry_count,
            jobs.c.max_retry_count,
            # The last change of a job that waits is its birth, its release, its claim, or the hand-over from parse.
            func.greatest(jobs.c.due_at, jobs.c.updated_at).label("queued_since"),
            jobs.c.next_retry_at,
            workers.c.name.label("worker_name"),
            attempts.c.stage_started_at,
            *last_error.c,
        )
        .select_from(jobs)
        .join(versions, versions.c.id == jobs.c.version_id)
        .outerjoin(
            attempts,
            (attempts.c.job_id == jobs.c.id)
            & (attempts.c.attempt_no == jobs.c.attempt_no)
            & (attempts.c.status == AttemptStatus.STARTED),
        )
        .outerjoin(workers, workers.c.id == attempts.c.run_by)
        .outerjoin(last_error, true())
    )


def stage_times(document: FromClause, live: FromClause, newest: FromClause) -> Select[Any]:
    """The finished stages of the version being built, or the newest, out of the document's latest events."""
    recent = (
        select(events)
        .where(events.c.document_id == document.c.id)
        .order_by(events.c.id.desc())
        .limit(RECENT_EVENTS)
        .correlate(document)
        .lateral("recent")
    )
    finished = [f"{stage}_COMPLETED" for stage in ("PARSING", "CHUNKING", "EMBEDDING")] + ["INDEXED"]
    step = (
        select(
            recent.c.id,
            recent.c.type,
            recent.c.stage,
            recent.c.created_at,
            (recent.c.created_at - func.lag(recent.c.created_at).over(order_by=recent.c.id)).label("elapsed"),
        )
        .where(
            recent.c.version_id == func.coalesce(live.c.version_id, newest.c.version_id),
            recent.c.type.in_(["CLAIMED", *finished]),
        )
        .correlate(live, newest)
        .lateral("step")
    )

    def gathered(column: ColumnElement[Any], type_: Any) -> ColumnElement[Any]:
        return func.array_agg(aggregate_order_by(column, step.c.id), type_=ARRAY(type_))

    return select(
        gathered(step.c.stage, Text).label("stages"),
        gathered(step.c.created_at, TIME).label("finished"),
        gathered(step.c.elapsed, Interval).label("elapsed"),
    ).where(step.c.type.in_(finished), step.c.elapsed.is_not(None))


def progress(row: RowMapping, prefix: str, times: tuple[StageTime, ...]) -> VersionProgress:
    found = {key.removeprefix(prefix): value for key, value in row.items() if key.startswith(prefix)}
    state = JobState(found["state"]) if found["state"] else None
    running = state is JobState.RUNNING
    chunked = found["chunk_count"] > 0
    # One run does two stages: the second began when the first ended.
    began = max([found["stage_started_at"], *(time.finished_at for time in times)]) if running else None
    return VersionProgress(
        version_id=found["version_id"],
        version_no=found["version_no"],
        status=VersionStatus(found["status"]),
        stage=VersionStatus(found["stopped_stage"] or found["status"]),
        task=Task(found["task"]),
        job_id=found["job_id"],
        state=state,
        attempt=found["retry_count"] + 1,
        max_attempts=found["max_retry_count"] + 1,
        chunks_embedded=found["embedding_count"] if chunked else None,
        chunks_total=found["chunk_count"] if chunked else None,
        queued_since=found["queued_since"] if state is JobState.WAITING else None,
        next_retry_at=found["next_retry_at"],
        worker_name=found["worker_name"] if running else None,
        stage_started_at=began,
        last_error=last_error(found),
    )


def last_error(found: Mapping[str, Any]) -> LastError | None:
    if found["last_failed_at"] is None:
        return None
    return LastError(
        failure_type=found["last_failure_type"],
        failure_reason=found["last_failure_reason"],
        error_message=found["last_error_message"],
        failed_at=found["last_failed_at"],
        explanation=explain(found["last_failure_type"], found["last_failure_reason"]),
    )
