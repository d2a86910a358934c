"""Figures for a monitor, each one bounded statement or one scan that a caller should not ask for too often."""

from dataclasses import dataclass

from sqlalchemy import Connection, func, select

from domain.statuses import AttemptStatus, VersionStatus
from domain.tables import JOB_IS_LIVE, attempts, events, jobs, versions

RECENT_EVENTS = 5_000  # among which stage times are looked for

FINISHED = ("PARSING_COMPLETED", "CHUNKING_COMPLETED", "EMBEDDING_COMPLETED", "INDEXED")


@dataclass(frozen=True, slots=True)
class JobCount:
    """How many jobs are in this status; ``stage`` is None for those that ended."""

    status: str
    stage: VersionStatus | None
    count: int


@dataclass(frozen=True, slots=True)
class AttemptCount:
    """How many attempts ended so; ``outcome`` and ``failure_type`` are None for those that did not fail."""

    status: AttemptStatus
    outcome: str | None
    failure_type: str | None
    count: int


@dataclass(frozen=True, slots=True)
class StageSeconds:
    """How long a stage took lately, from its claim or the stage before it to its end."""

    stage: VersionStatus
    count: int
    median: float
    p95: float


def job_counts(connection: Connection) -> list[JobCount]:
    """Jobs by status, live ones also by stage; exact. Live ones come from an index, ended ones from a scan."""
    live = connection.execute(
        select(jobs.c.status, versions.c.status.label("stage"), func.count())
        .join(versions, versions.c.id == jobs.c.version_id)
        .where(JOB_IS_LIVE)
        .group_by(jobs.c.status, versions.c.status)
    ).all()
    ended = connection.execute(select(jobs.c.status, func.count()).where(~JOB_IS_LIVE).group_by(jobs.c.status)).all()
    return [JobCount(status, VersionStatus(stage), count) for status, stage, count in live] + [
        JobCount(status, None, count) for status, count in ended
    ]


def attempt_counts(connection: Connection) -> list[AttemptCount]:
    """Attempts by how they ended; exact, by a scan."""
    rows = connection.execute(
        select(attempts.c.status, attempts.c.outcome, attempts.c.failure_type, func.count()).group_by(
            attempts.c.status, attempts.c.outcome, attempts.c.failure_type
        )
    )
    return [AttemptCount(AttemptStatus(status), outcome, kind, count) for status, outcome, kind, count in rows]


def stage_seconds(connection: Connection) -> list[StageSeconds]:
    """Times of the stages that finished among the latest events."""
    recent = select(events).order_by(events.c.id.desc()).limit(RECENT_EVENTS).subquery("recent")
    step = (
        select(
            recent.c.type,
            recent.c.stage,
            func.extract(
                "epoch",
                recent.c.created_at
                - func.lag(recent.c.created_at).over(partition_by=recent.c.version_id, order_by=recent.c.id),
            ).label("seconds"),
        )
        .where(recent.c.type.in_(["CLAIMED", *FINISHED]))
        .subquery("step")
    )
    rows = connection.execute(
        select(
            step.c.stage,
            func.count(),
            func.percentile_cont(0.5).within_group(step.c.seconds),
            func.percentile_cont(0.95).within_group(step.c.seconds),
        )
        .where(step.c.type.in_(FINISHED), step.c.seconds.is_not(None))
        .group_by(step.c.stage)
    )
    return [StageSeconds(VersionStatus(stage), count, float(median), float(p95)) for stage, count, median, p95 in rows]
