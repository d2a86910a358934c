"""What should happen to a claim: written from the specification, one function for each of the domain's.

Each changes the world and returns what the domain function should return, or raises what it should raise, before it
has changed anything. Ids and tokens are the database's to choose: they are taken over from ``got``.
"""

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Any

from domain.claim import ClaimedJob
from domain.errors import (
    AttemptConflict,
    AttemptNotCurrent,
    ClaimLost,
    NotFound,
    StageNotCurrent,
    StageNotDue,
    VersionIncomplete,
)
from domain.failures import Failure, FailureType
from domain.held import Claim
from domain.statuses import Task
from tests.model.world import Attempt, Job, Version, World


def find(world: World, claim: Claim) -> tuple[Job, Attempt]:
    job, attempt = world.jobs.get(claim.job_id), world.attempts.get(claim.attempt_id)
    if job is None or attempt is None or attempt.job is not job:
        raise NotFound("attempt", claim)
    return job, attempt


def is_of(attempt: Attempt, claim: Claim) -> bool:
    return (attempt.worker_id, attempt.token) == (claim.worker_id, claim.token)


def held(world: World, claim: Claim) -> tuple[Job, Attempt]:
    job, attempt = find(world, claim)
    if attempt.status in ("INDEXED", "FAILED"):
        raise AttemptConflict(attempt.id, attempt.status)
    if attempt.status != "STARTED":
        raise AttemptNotCurrent(attempt.id, attempt.status)
    if not is_of(attempt, claim):
        raise ClaimLost(job.id, "mismatch")
    if job.lease_over is not None:
        raise ClaimLost(job.id, "expired")
    return job, attempt


def claim(world: World, worker_id: int, limit: int, tasks: Collection[Task], got: Any) -> list[tuple[Any, ...]]:
    recover(world)
    free = {task: free_places(world, task) for task in Task}
    taken: list[Job] = []
    for task in (Task.EMBED, Task.PARSE):
        if task not in tasks:
            continue
        if free[Task.EMBED] <= 0:
            break
        due = [job for job in world.jobs.values() if job.status == "PENDING" and job.task == task and job.due]
        due.sort(key=lambda job: job.due or 0)
        chosen = due[: max(0, min(limit - len(taken), free[task]))]
        free[task] -= len(chosen)
        taken += chosen
    expected: list[tuple[Any, ...]] = []
    claimed: dict[int, ClaimedJob] = {one.claim.job_id: one for one in got} if isinstance(got, list) else {}
    for job in taken:
        if job.id not in claimed:
            expected.append((job.id, "should have been claimed"))
            continue
        held_now = claimed[job.id].claim
        attempt = Attempt(held_now.attempt_id, job, len(job.attempts) + 1, worker_id, held_now.token)
        job.status, job.due, job.lease_over = "PROCESSING", None, None
        job.attempts.append(attempt)
        world.attempts[attempt.id] = attempt
        if job.version.status == "UPLOADED":
            job.version.status = "PARSING"
        stage = job.version.status
        world.event(job.version.document, "CLAIMED", stage, job.version, job, attempt)
        expected.append((job.id, worker_id, job.task, stage, attempt.no, job.retry_count, job.max_retry_count))
    return expected


def free_places(world: World, task: Task) -> int:
    served = sum(w.concurrency for w in world.workers.values() if task in w.queues and not w.stopped and not w.silent)
    waiting = [
        job for job in world.jobs.values() if job.status == "PROCESSING" and job.task == task and is_unbegun(job)
    ]
    return 2 * served - len(waiting)


def is_unbegun(job: Job) -> bool:
    return job.status == "PROCESSING" and not job.attempts[-1].begun


def recover(world: World) -> int:
    expired = [job for job in world.jobs.values() if job.status == "PROCESSING" and job.lease_over is not None]
    expired.sort(key=lambda job: job.lease_over or 0)
    for job in expired[:20]:
        attempt = job.attempts[-1]
        if attempt.begun:
            message = (
                f"worker {attempt.run_by or attempt.worker_id} stopped renewing its lease: "
                "it was killed, or cut off from the database"
            )
            write_failure(world, job, attempt, Failure(FailureType.WORKER_INTERNAL_ERROR, message, "LEASE_EXPIRED"))
        else:
            write_release(world, job, attempt)
    return len(expired[:20])


def begin(world: World, claim: Claim, task: Task, run_by: int) -> tuple[Any, ...]:
    job, attempt = held(world, claim)
    if job.task != task or attempt.begun:
        raise StageNotDue(job.id, task, "")
    attempt.begun, attempt.run_by = True, run_by
    version = job.version
    return (
        version.document.id,
        version.id,
        version.document.owner_id,
        version.document.name,
        version.status,
        attempt.no,
        job.retry_count,
    )


def extend(world: World, claims: Sequence[Claim]) -> list[Claim]:
    def holds(claim: Claim) -> bool:
        job = world.jobs.get(claim.job_id)
        return (
            job is not None and job.status == "PROCESSING" and is_of(job.attempts[-1], claim) and job.lease_over is None
        )

    return [claim for claim in claims if not holds(claim)]


def record_parsed(world: World, claim: Claim, sha256: str) -> None:
    job, _ = held(world, claim)
    version = job.version
    if version.status != "PARSING":
        return  # the same text again
    version.has_text, version.sha256 = True, sha256
    move_on(world, version, "CHUNKING")


def record_chunks(world: World, claim: Claim, count: int) -> None:
    job, attempt = held(world, claim)
    version = job.version
    if version.status != "CHUNKING":
        if version.chunks == count:
            return  # the same chunks again
        raise StageNotCurrent(version.id, version.status, "")
    version.chunks = count
    move_on(world, version, "EMBEDDING")
    job.task, attempt.begun = "embed", False


def record_embeddings(world: World, claim: Claim, numbers: Collection[int]) -> bool:
    job, _ = held(world, claim)
    version = job.version
    if set(numbers) - version.embedded:
        version.embedded |= set(numbers)
    if version.status == "EMBEDDING" and len(version.embedded) == version.chunks:
        move_on(world, version, "STORING")
    return version.status == "STORING"


def move_on(world: World, version: Version, stage: str) -> None:
    world.event(version.document, f"{version.status}_COMPLETED", version.status, version, version.jobs[-1])
    version.status = stage


def complete(world: World, claim: Claim) -> tuple[Any, ...]:
    job, attempt = find(world, claim)
    version, document = job.version, job.version.document
    if not (attempt.status == "INDEXED" and is_of(attempt, claim)):
        held(world, claim)
        if version.status != "STORING":
            raise VersionIncomplete(version.id, version.status, 0, 0)
        attempt.status, job.status, job.lease_over = "INDEXED", "INDEXED", None
        world.event(document, "INDEXED", version.status, version, job)
        version.status = "INDEXED"
        if document.current is not None and document.current.no > version.no:
            make_stale(world, version)
        else:
            if document.current is not None:
                make_stale(world, document.current)
            point_at(world, version)
    current = (document.owner_id, document.id, version.id, "DOCUMENT_INDEXED") in world.notifications
    return (job.id, attempt.id, attempt.no, document.id, version.id, version.no, current)


def point_at(world: World, version: Version) -> None:
    document = version.document
    document.current = version
    world.event(document, "CURRENT_CHANGED", None, version)
    world.notifications[(document.owner_id, document.id, version.id, "DOCUMENT_INDEXED")] += 1
    if document.status != "INDEXED":
        document.status = "INDEXED"
        world.event(document, "DOCUMENT_INDEXED", None, version)


def make_stale(world: World, version: Version) -> None:
    if version.active and version.embedded:
        world.event(version.document, "EMBEDDINGS_STALE", None, version)
    version.active = not version.embedded


def fail(world: World, claim: Claim, failure: Failure) -> tuple[Any, ...]:
    job, attempt = find(world, claim)
    replayed = attempt.status == "FAILED" and is_of(attempt, claim)
    if not (replayed and (attempt.failure_type, attempt.error_message) == (failure.type, failure.message)):
        held(world, claim)
        write_failure(world, job, attempt, failure)
    return failed_result(attempt)


def failed_result(attempt: Attempt) -> tuple[Any, ...]:
    job = attempt.job
    return (
        *(job.id, attempt.id, attempt.no, attempt.status, attempt.failed_stage, attempt.failure_type),
        *(attempt.failure_reason, attempt.error_message, attempt.retryable, attempt.outcome, attempt.retry_count),
        *(job.max_retry_count, attempt.delay),
    )


def write_failure(world: World, job: Job, attempt: Attempt, failure: Failure) -> None:
    version, document, policy = job.version, job.version.document, world.policies[failure.type]
    stage = version.status
    attempt.status, attempt.failed_stage = "FAILED", stage
    attempt.failure_type, attempt.failure_reason, attempt.error_message = failure.type, failure.reason, failure.message
    attempt.retryable = policy.retryable
    job.lease_over = None
    world.event(document, f"{stage}_FAILED", stage, version, job, attempt)
    if policy.retryable and job.retry_count < job.max_retry_count:
        delay = max(policy.base_delay * float(policy.factor**job.retry_count), failure.retry_after or timedelta(0))
        job.retry_count += 1
        attempt.outcome, attempt.retry_count = "RETRY", job.retry_count
        attempt.delay = min(delay, policy.max_delay)
        job.status, job.due = "PENDING", None if attempt.delay else world.now()
        world.event(document, "RETRY", stage, version, job, attempt)
        return
    attempt.outcome, attempt.retry_count = "FAILED", job.retry_count
    job.status = "FAILED"
    world.event(document, "FAILED", stage, version, job, attempt)
    failed = [one for one in job.attempts if one.status == "FAILED"]
    world.failures[job.id] = (version.id, stage, failure.type, job.retry_count, len(failed))
    world.notifications[(document.owner_id, document.id, version.id, "DOCUMENT_FAILED")] += 1
    version.status, version.stopped_stage = "FAILED", stage
    make_stale(world, version)
    if document.status == "PENDING" and not document.live_jobs:
        document.status = "FAILED"
        world.event(document, "DOCUMENT_FAILED")


def release(world: World, claim: Claim) -> None:
    job, attempt = find(world, claim)
    if attempt.status == "RELEASED" and is_of(attempt, claim):
        return
    held(world, claim)
    write_release(world, job, attempt)


def write_release(world: World, job: Job, attempt: Attempt) -> None:
    attempt.status = "RELEASED"
    job.status, job.due, job.lease_over = "PENDING", job.born, None
    world.event(job.version.document, "RELEASED", job.version.status, job.version, job, attempt)


def release_unbegun(world: World, task: Task) -> list[int]:
    waiting = [job for job in world.jobs.values() if job.task == task and is_unbegun(job)]
    for job in waiting:
        write_release(world, job, job.attempts[-1])
    return [job.id for job in waiting]
