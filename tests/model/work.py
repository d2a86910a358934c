"""What workers and callers do, each as one step held to the model."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, text

from domain.begin import begin_stage
from domain.claim import claim_jobs
from domain.complete import complete_attempt
from domain.enqueue import Upload, enqueue_documents
from domain.held import Claim
from domain.record import record_chunks, record_embeddings, record_parsed
from domain.statuses import Task
from tests.domain.indexing import Passage, Text
from tests.model import asking, working
from tests.model.steps import Walk
from tests.model.world import Attempt

LEASE = timedelta(hours=12)
PARSED_SHA256 = "e" * 64


def pick(found: Sequence[Any], number: int) -> Any:
    return found[-1 - number % len(found)]


class Work(Walk):
    """The steps that a walk is made of."""

    model_id = 0

    def enqueue_all(self, asked: list[Upload], keep: bool = True) -> None:
        self.step(
            lambda connection: enqueue_documents(connection, asked, self.model_id),
            lambda world, got: asking.enqueue(world, asked, self.model_id, got),
            keep,
        )

    def claim_for(self, worker_id: int, limit: int, tasks: tuple[Task, ...], keep: bool = True) -> None:
        self.step(
            lambda connection: claim_jobs(connection, worker_id, limit, tasks),
            lambda world, got: working.claim(world, worker_id, limit, tasks, got),
            keep,
        )

    def go_on(self, attempt: Attempt, chunks: int) -> None:
        claim, version = claim_of(attempt), attempt.job.version
        if not attempt.begun:
            self.begin_as(claim, Task(attempt.job.task), claim.worker_id)
        elif version.status == "PARSING":
            self.record_text(claim)
        elif version.status == "CHUNKING":
            self.record_passages(claim, chunks)
        elif version.status == "EMBEDDING":
            self.record_vectors(claim, range(chunks))
        else:
            self.report_complete(claim)

    def begin_as(self, claim: Claim, task: Task, run_by: int) -> None:
        self.step(
            lambda connection: begin_stage(connection, claim, task, run_by, LEASE),
            lambda world, got: working.begin(world, claim, task, run_by),
        )

    def record_text(self, claim: Claim, keep: bool = True) -> None:
        job = self.world.jobs.get(claim.job_id)
        sha256 = (job and job.version.sha256) or PARSED_SHA256
        self.step(
            lambda connection: record_parsed(connection, claim, Text("one two three"), sha256, 13),
            lambda world, got: working.record_parsed(world, claim, sha256),
            keep,
        )

    def record_passages(self, claim: Claim, count: int, keep: bool = True) -> None:
        passages = [Passage("word", 5 * number, 5 * number + 4, None, 1) for number in range(count)]
        self.step(
            lambda connection: record_chunks(connection, claim, passages),
            lambda world, got: working.record_chunks(world, claim, count),
            keep,
        )

    def record_vectors(self, claim: Claim, numbers: Sequence[int], keep: bool = True) -> None:
        job = self.world.jobs.get(claim.job_id)
        numbers = [number for number in numbers if job and number < job.version.chunks]

        def record(connection: Connection) -> bool:
            chunk_ids = connection.execute(
                text("SELECT id FROM chunks WHERE version_id = :version AND chunk_no = ANY (:numbers)"),
                {"version": job.version.id if job else 0, "numbers": numbers},
            ).scalars()
            found = list(chunk_ids)
            return record_embeddings(connection, claim, found, [[1.0, 0.0, 0.0]] * len(found))

        self.step(record, lambda world, got: working.record_embeddings(world, claim, numbers), keep)

    def report_complete(self, claim: Claim, keep: bool = True) -> None:
        self.step(
            lambda connection: complete_attempt(connection, claim),
            lambda world, got: working.complete(world, claim),
            keep,
        )

    def running(self) -> list[Attempt]:
        return [attempt for attempt in self.world.attempts.values() if attempt.status == "STARTED"]

    def waiting(self) -> list[Any]:
        return [job for job in self.world.jobs.values() if job.status == "PENDING" and job.due is None]

    def any_claim(self, number: int, wrong: str) -> Claim:
        claim = claim_of(pick(list(self.world.attempts.values()), number))
        if wrong == "token":
            return Claim(claim.job_id, claim.attempt_id, claim.worker_id, UUID(int=1))
        if wrong == "worker":
            return Claim(claim.job_id, claim.attempt_id, claim.worker_id + 1, claim.token)
        if wrong == "job":
            return Claim(pick(list(self.world.jobs), number + 1), claim.attempt_id, claim.worker_id, claim.token)
        return claim


def claim_of(attempt: Attempt) -> Claim:
    return Claim(attempt.job.id, attempt.id, attempt.worker_id, attempt.token)
