"""Random walks through the life of documents, held to the model after every step."""

from datetime import timedelta
from decimal import Decimal

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from domain.cancel import cancel_document
from domain.delete import delete_document
from domain.enqueue import Upload, register_model
from domain.fail import fail_attempt
from domain.failures import Failure, FailureType
from domain.lease import extend_leases
from domain.policy import FailurePolicy, set_policy
from domain.recover import recover_expired_leases
from domain.release import release_attempt, release_unbegun
from domain.retry import retry_version
from domain.statuses import Task
from domain.workers import note_worker_stopped, register_worker
from tests.model import asking, working
from tests.model.steps import WORKERS
from tests.model.work import LEASE, PARSED_SHA256, Work, claim_of, pick
from tests.model.world import HOUR, Worker

TABLES = "documents, document_versions, embedding_jobs, indexing_attempts, parsed_texts, chunks, embeddings, "
TABLES += "indexing_events, processing_failures, notifications, workers"

names = st.sampled_from(["a.txt", "b.txt"])
owners = st.sampled_from(["ann", "bob"])
uploads = st.builds(
    Upload,
    owner_id=owners,
    name=names,
    storage_uri=st.sampled_from(["file:///1", "file:///2"]),
    content_sha256=st.sampled_from(["a" * 64, "b" * 64, PARSED_SHA256, None]),
    request_id=st.sampled_from([None, None, None, "r1", "r2"]),
    max_retry_count=st.sampled_from([0, 1, 3]),
    force=st.booleans(),
)
failures = st.builds(
    Failure,
    type=st.sampled_from(list(FailureType)),
    message=st.sampled_from(["no answer", "no page can be read"]),
    reason=st.sampled_from([None, "CORRUPT"]),
    retry_after=st.sampled_from([None, timedelta(0), 3 * HOUR, 9 * HOUR]),
)
# The newest is the simplest: what goes on is more interesting than what is over.
which = st.integers(0, 30)
mostly = st.sampled_from([True, True, True, True, False])
any_tasks = st.sampled_from([(Task.PARSE, Task.EMBED), (Task.PARSE,), (Task.EMBED,)])


class DocumentsAndWorkers(Work):
    """Several owners, documents, versions and workers; every step is one transaction, kept or rolled back."""

    @initialize(pace=st.lists(st.integers(0, 5), min_size=10, max_size=50))
    def start(self, pace: list[int]) -> None:
        self.pace = pace
        self.force(f"TRUNCATE {TABLES} RESTART IDENTITY")
        connection = self.connections[0]
        self.model_id = register_model(connection, "test:model-3", 3)
        for policy in self.world.policies.values():
            set_policy(connection, policy)
        for queues, concurrency in WORKERS:
            worker_id = register_worker(connection, "worker", queues, concurrency)
            self.world.workers[worker_id] = Worker(worker_id, queues, concurrency)
        connection.commit()

    # What callers ask for

    @rule(asked=st.lists(uploads, min_size=1, max_size=3), keep=mostly)
    def enqueue(self, asked: list[Upload], keep: bool) -> None:
        self.enqueue_all(asked, keep)

    @precondition(lambda self: self.world.versions)
    @rule(number=which, stopped=mostly, keep=mostly)
    def retry(self, number: int, stopped: bool, keep: bool) -> None:
        """Of a version that stopped, if there is one and ``stopped``; of any other it is refused."""
        candidates = [version.id for version in self.world.versions.values() if version.stopped_stage]
        version_id = pick(candidates if stopped and candidates else list(self.world.versions), number)
        self.step(
            lambda connection: retry_version(connection, version_id),
            lambda world, got: asking.retry(world, version_id, got),
            keep,
        )

    @precondition(lambda self: self.world.documents)
    @rule(number=which, owner=st.sampled_from([None, None, "ann"]), keep=mostly)
    def cancel(self, number: int, owner: str | None, keep: bool) -> None:
        document_id = pick(list(self.world.documents), number)
        self.step(
            lambda connection: cancel_document(connection, document_id, owner),
            lambda world, got: asking.cancel(world, document_id, owner),
            keep,
        )

    @precondition(lambda self: self.world.documents)
    @rule(number=which, owner=st.sampled_from([None, "ann"]), sure=st.sampled_from([False, False, True]), keep=mostly)
    def delete(self, number: int, owner: str | None, sure: bool, keep: bool) -> None:
        document_id = pick(list(self.world.documents), number)
        if sure:
            self.step(
                lambda connection: delete_document(connection, document_id, owner),
                lambda world, got: asking.delete(world, document_id, owner),
                keep,
            )

    # What workers do

    @rule(worker=which, limit=st.integers(1, 4), tasks=any_tasks, keep=mostly)
    def claim(self, worker: int, limit: int, tasks: tuple[Task, ...], keep: bool) -> None:
        self.claim_for(pick(list(self.world.workers), worker), limit, tasks, keep)

    @invariant()
    def go_on_meanwhile(self) -> None:
        """Whatever else is done or left out of a walk, there are documents, and workers that take them further."""
        steps = self.pace.pop() if self.pace else 0
        for number in range(steps):
            if self.running():
                self.go_on(pick(self.running(), steps * number), number % 3 + 1)
            elif any(job.due for job in self.world.jobs.values()):
                self.claim_for(pick(list(self.world.workers), steps), number + 1, tuple(Task))
            else:
                upload = Upload("ann", f"{'ab'[steps % 2]}.txt", "file:///1", max_retry_count=steps % 3)
                self.enqueue_all([upload])

    @precondition(lambda self: self.world.attempts)
    @rule(number=which, wrong=st.sampled_from(["", "", "token", "worker", "job"]), task=st.sampled_from(Task), by=which)
    def begin(self, number: int, wrong: str, task: Task, by: int) -> None:
        self.begin_as(self.any_claim(number, wrong), task, pick(list(self.world.workers), by))

    @precondition(lambda self: self.world.attempts)
    @rule(
        number=which,
        wrong=st.sampled_from(["", "", "", "token", "worker", "job"]),
        what=st.sampled_from(["text", "chunks", "vectors", "complete", "release"]),
        count=st.integers(1, 3),
        keep=mostly,
    )
    def report(self, number: int, wrong: str, what: str, count: int, keep: bool) -> None:
        """Anything, of any attempt there ever was, also of one that ended long ago or never was this caller's."""
        claim = self.any_claim(number, wrong)
        if what == "text":
            self.record_text(claim, keep)
        elif what == "chunks":
            self.record_passages(claim, count, keep)
        elif what == "vectors":
            self.record_vectors(claim, range(count), keep)
        elif what == "complete":
            self.report_complete(claim, keep)
        else:
            self.step(lambda c: release_attempt(c, claim), lambda world, got: working.release(world, claim), keep)

    @precondition(lambda self: self.world.attempts)
    @rule(
        number=which,
        running=mostly,
        wrong=st.sampled_from(["", "", "", "token", "worker", "job"]),
        failure=failures,
        keep=mostly,
    )
    def fail(self, number: int, running: bool, wrong: str, failure: Failure, keep: bool) -> None:
        claim = self.any_claim(number, wrong)
        if running and self.running():
            claim = claim_of(pick(self.running(), number))
        self.step(
            lambda connection: fail_attempt(connection, claim, failure),
            lambda world, got: working.fail(world, claim, failure),
            keep,
        )

    @precondition(lambda self: self.world.attempts)
    @rule(numbers=st.lists(which, max_size=4, unique=True))
    def extend(self, numbers: list[int]) -> None:
        claims = [self.any_claim(number, "") for number in numbers]
        self.step(
            lambda connection: extend_leases(connection, claims, LEASE),
            lambda world, got: working.extend(world, claims),
        )

    @rule(task=st.sampled_from(Task), lost=st.booleans())
    def release_lost_messages(self, task: Task, lost: bool) -> None:
        patience = timedelta(0) if lost else HOUR
        self.step(
            lambda connection: release_unbegun(connection, task, patience),
            lambda world, got: working.release_unbegun(world, task) if lost else [],
        )

    @precondition(lambda self: any(job.lease_over for job in self.world.jobs.values()))
    @rule()
    def recover(self) -> None:
        self.step(recover_expired_leases, lambda world, got: working.recover(world))

    # What happens to them

    @precondition(lambda self: self.running())
    @rule(number=which)
    def let_lease_run_out(self, number: int) -> None:
        job = pick(self.running(), number).job
        job.lease_over = job.lease_over or self.world.now()
        self.force("UPDATE embedding_jobs SET lease_expires_at = clock_timestamp() WHERE id = :id", id=job.id)
        job.lease_over = self.world.now()

    @precondition(lambda self: self.waiting())
    @rule(number=which)
    def let_retry_become_due(self, number: int) -> None:
        job = pick(self.waiting(), number)
        self.force(
            """
            WITH moved AS (
                UPDATE indexing_attempts
                SET next_retry_at = now, finished_at = finished_at - (next_retry_at - now)
                FROM clock_timestamp() AS now WHERE id = :attempt RETURNING indexing_attempts.*
            )
            UPDATE embedding_jobs job SET next_retry_at = moved.next_retry_at, last_failed_at = moved.finished_at
            FROM moved WHERE job.id = moved.job_id
            """,
            attempt=job.attempts[-1].id,
        )
        job.due = self.world.now()

    @rule(
        failure_type=st.sampled_from(FailureType),
        retryable=mostly,
        base=st.sampled_from([timedelta(0), HOUR]),
        factor=st.sampled_from([Decimal(1), Decimal(2), Decimal("2.5")]),
        most=st.sampled_from([HOUR, 5 * HOUR]),
    )
    def change_policy(
        self, failure_type: FailureType, retryable: bool, base: timedelta, factor: Decimal, most: timedelta
    ) -> None:
        policy = FailurePolicy(failure_type, retryable, base, factor, most)
        self.world.policies[failure_type] = policy
        self.step(lambda connection: set_policy(connection, policy), lambda world, got: None)

    @rule(number=which, silent=st.sampled_from([False, False, True]))
    def fall_silent_or_speak(self, number: int, silent: bool) -> None:
        worker = pick(list(self.world.workers.values()), number)
        worker.silent = silent

    @precondition(lambda self: len(self.world.workers) < 6)
    @rule(number=which)
    def restart_worker(self, number: int) -> None:
        old = pick(list(self.world.workers.values()), number)
        old.stopped = True
        self.step(lambda connection: note_worker_stopped(connection, old.id), lambda world, got: None)
        connection = self.connections[0]
        worker_id = register_worker(connection, "worker", old.queues, old.concurrency)
        connection.commit()
        self.world.workers[worker_id] = Worker(worker_id, old.queues, old.concurrency)
