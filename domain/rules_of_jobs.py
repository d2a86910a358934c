"""Rules between a job and its attempts: 8, 9, 12, 13 and 17 of the state machine.

Each query starts from the few rows that a partial index holds, or joins whole tables once. Times are shown as text:
one of them may be infinite, which no datetime is.
"""

from datetime import timedelta

from sqlalchemy import Text, and_, case, cast, func, not_, or_, select, union_all

from domain.rule import REPAIR, REPLACE, Rule
from domain.statuses import AttemptStatus, JobStatus, Outcome, Task, VersionStatus
from domain.tables import JOB_IS_LIVE, attempts, inline, jobs, processing_failures, versions

LONGEST_LEASE = timedelta(days=1)
LONGEST_WAIT = timedelta(days=30)

LAST = and_(attempts.c.job_id == jobs.c.id, attempts.c.attempt_no == jobs.c.attempt_no)
JOB = (jobs.c.id.label("row_id"), jobs.c.document_id, jobs.c.status)
LAST_STATUS = func.coalesce(attempts.c.status, "missing").label("last")

STARTED = and_(
    attempts.c.job_id == jobs.c.id,
    attempts.c.status == inline(AttemptStatus.STARTED),
    attempts.c.worker_id == jobs.c.worker_id,
    attempts.c.claim_token == jobs.c.claim_token,
)
RETRIES = (
    select(attempts.c.job_id, func.count().label("retries"))
    .where(attempts.c.outcome == Outcome.RETRY)
    .group_by(attempts.c.job_id)
    .subquery()
)
UNNUMBERED = union_all(
    select(*JOB, jobs.c.attempt_no).outerjoin(attempts, LAST).where(jobs.c.attempt_no > 0, attempts.c.id.is_(None)),
    select(*JOB, jobs.c.attempt_no)
    .select_from(jobs)
    .join(attempts, attempts.c.job_id == jobs.c.id)
    .where(attempts.c.attempt_no > jobs.c.attempt_no),
).subquery()

RULES = (
    Rule(
        "jobs_processing_has_its_attempt",
        "embedding_jobs",
        select(*JOB).where(
            jobs.c.status == inline(JobStatus.PROCESSING), not_(select(attempts.c.id).where(STARTED).exists())
        ),
        "is PROCESSING without a STARTED attempt of its worker and token",
        REPLACE,
    ),
    Rule(
        "attempts_started_has_its_job",
        "indexing_attempts",
        select(attempts.c.id.label("row_id"), jobs.c.document_id, jobs.c.id.label("job_id"), jobs.c.status)
        .join(jobs, jobs.c.id == attempts.c.job_id)
        .where(attempts.c.status == inline(AttemptStatus.STARTED), jobs.c.status != JobStatus.PROCESSING),
        "is STARTED, while its job {job_id} is {status}",
        REPLACE,
    ),
    Rule(
        "jobs_indexed_iff_last_attempt_is",
        "embedding_jobs",
        select(*JOB, LAST_STATUS)
        .select_from(jobs)
        .outerjoin(attempts, LAST)
        .where((jobs.c.status == JobStatus.INDEXED) != attempts.c.status.is_not_distinct_from(AttemptStatus.INDEXED)),
        "is {status}, while its last attempt is {last}",
        REPLACE,
    ),
    Rule(
        "jobs_failed_iff_last_attempt_is",
        "embedding_jobs",
        select(*JOB, LAST_STATUS, func.coalesce(attempts.c.outcome, "none").label("outcome"))
        .select_from(jobs)
        .outerjoin(attempts, LAST)
        .where((jobs.c.status == JobStatus.FAILED) != attempts.c.outcome.is_not_distinct_from(Outcome.FAILED)),
        "is {status}, while its last attempt is {last} with outcome {outcome}",
        REPLACE,
    ),
    Rule(
        "jobs_follow_their_attempt",
        "embedding_jobs",
        select(*JOB, LAST_STATUS)
        .select_from(jobs)
        .join(attempts, LAST)
        .where(
            jobs.c.status == inline(JobStatus.PENDING),
            not_(
                or_(
                    attempts.c.status == AttemptStatus.RELEASED,
                    and_(
                        attempts.c.outcome == Outcome.RETRY,
                        attempts.c.retry_count == jobs.c.retry_count,
                        # May have been put off since.
                        attempts.c.next_retry_at <= jobs.c.next_retry_at,
                    ),
                    # Named by the rules above.
                    attempts.c.status.in_([AttemptStatus.STARTED, AttemptStatus.INDEXED]),
                    attempts.c.outcome == Outcome.FAILED,
                )
            ),
        ),
        "waits otherwise than its last attempt says, which is {last}: after RETRY at that attempt's time with its "
        "retry_count, after RELEASED at once",
        REPLACE,
    ),
    Rule(
        "jobs_claim_is_the_next_attempt",
        "embedding_jobs",
        select(UNNUMBERED),
        "counts {attempt_no} attempts, which is not the number of its last one",
        REPLACE,
    ),
    Rule(
        "jobs_retry_count_counts_retries",
        "embedding_jobs",
        select(*JOB, jobs.c.retry_count, func.coalesce(RETRIES.c.retries, 0).label("retries"))
        .select_from(jobs)
        .outerjoin(RETRIES, RETRIES.c.job_id == jobs.c.id)
        .where(jobs.c.retry_count != func.coalesce(RETRIES.c.retries, 0)),
        "counts {retry_count} retries; of its attempts {retries} have the outcome RETRY",
        REPAIR,
    ),
    Rule(
        "jobs_task_follows_stage",
        "embedding_jobs",
        select(*JOB, jobs.c.task, versions.c.status.label("stage"))
        .select_from(jobs)
        .join(versions, versions.c.id == jobs.c.version_id)
        .where(
            JOB_IS_LIVE,
            jobs.c.task
            != case(
                (versions.c.status.in_([VersionStatus.EMBEDDING, VersionStatus.STORING]), Task.EMBED),
                else_=Task.PARSE,
            ),
        ),
        "waits for task {task}, which does not do the stage {stage}",
        REPLACE,
    ),
    Rule(
        "jobs_lease_at_most_a_day",
        "embedding_jobs",
        select(*JOB, cast(jobs.c.lease_expires_at, Text).label("until")).where(
            jobs.c.status == inline(JobStatus.PROCESSING),
            jobs.c.lease_expires_at > func.statement_timestamp() + LONGEST_LEASE,
        ),
        "is leased until {until}: were its worker dead, nobody would take it over until then",
        REPLACE,
    ),
    Rule(
        "jobs_waiting_only_put_later",
        "embedding_jobs",
        select(*JOB, cast(jobs.c.next_retry_at, Text).label("until")).where(
            jobs.c.status == inline(JobStatus.PENDING),
            jobs.c.due_at > func.statement_timestamp() + LONGEST_WAIT,
        ),
        "waits until {until}, longer than any policy lets it",
        REPLACE,
    ),
    Rule(
        "jobs_final_failure",
        "embedding_jobs",
        select(*JOB)
        .select_from(jobs)
        .outerjoin(processing_failures, processing_failures.c.job_id == jobs.c.id)
        .where(jobs.c.status == JobStatus.FAILED, processing_failures.c.id.is_(None)),
        "is FAILED and has no row in processing_failures",
        REPAIR,
    ),
)
