"""Everything at once on a few documents: no two transitions deadlock, and every commit is consistent."""

import random
from collections import Counter
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from domain.begin import begin_stage
from domain.cancel import cancel_document
from domain.claim import ClaimedJob, claim_jobs
from domain.complete import complete_attempt
from domain.delete import delete_document
from domain.enqueue import Upload, enqueue_documents
from domain.errors import DomainError
from domain.fail import fail_attempt
from domain.failures import Failure, FailureType
from domain.invariants import check_invariants
from domain.lease import extend_leases
from domain.record import load_chunks_without_embedding, record_chunks, record_embeddings, record_parsed
from domain.recover import recover_expired_leases
from domain.refusals import sqlstate_of
from domain.release import release_attempt, release_unbegun
from domain.retry import retry_version
from domain.statuses import Task
from tests.conftest import Connect
from tests.domain.indexing import Indexing, Passage, Text
from tests.domain.rows import column, one

pytestmark = [pytest.mark.race, pytest.mark.usefixtures("seen_for_long")]

THREADS = 6
TURNS = 80
NAMES = ["a", "b", "c"]
DOCUMENTS = "SELECT id FROM documents ORDER BY id DESC LIMIT 3"
STOPPED = "SELECT id FROM document_versions ORDER BY status IN ('FAILED', 'CANCELLED') DESC, id DESC LIMIT 3"
TIMED_OUT = Failure(FailureType.STORAGE_UNAVAILABLE, "no answer")
CORRUPT = Failure(FailureType.DOCUMENT_CONTENT_INVALID, "no page can be read", "CORRUPT")


class Actor:
    """One session that does at random what workers, owners and operators do."""

    def __init__(self, indexing: Indexing, connection: Connection, claims: list[ClaimedJob], seed: int) -> None:
        self.connection = connection
        self.worker_id = indexing.worker_id
        self.model_id = indexing.model_id
        self.claims = claims  # of all actors: they report on each other's attempts
        self.chance = random.Random(seed)  # noqa: S311 - a repeatable mix, no secret
        self.done: Counter[str] = Counter()
        self.errors: list[str] = []

    def act(self) -> "Actor":
        actions: list[Callable[[], object]] = [
            *[self.claim] * 4,
            *[self.work] * 8,
            *[self.complete] * 6,
            *[self.retry] * 3,
            *[self.enqueue] * 2,
            self.fail,
            self.fail_for_good,
            self.release,
            self.release_lost,
            self.extend,
            self.recover,
            self.cancel,
            self.delete,
        ]
        for _ in range(TURNS):
            action = self.chance.choice(actions)
            name = action.__name__
            try:
                action()
                self.connection.commit()
                self.done[name] += 1
            except DomainError:
                self.connection.rollback()
            except DBAPIError as error:
                self.connection.rollback()
                # Two may store the same stage at once with one claim: the second is refused.
                if not (name == "work" and sqlstate_of(error).startswith("23")):
                    self.errors.append(f"{name}: {sqlstate_of(error)} {error.orig}")
        return self

    def some_claim(self, of: Collection[int] | None = None) -> ClaimedJob:
        """One of the last claims, of any of these versions if there are some."""
        claims = [job for job in self.claims if of is None or job.version_id in of][-6:] or self.claims[-6:]
        if not claims:
            raise DomainError
        return self.chance.choice(claims)

    def some(self, ids_of: str) -> int:
        ids = column(self.connection, ids_of)
        self.connection.commit()
        if not ids:
            raise DomainError
        return int(self.chance.choice(ids))

    def claim(self) -> None:
        found = claim_jobs(self.connection, self.worker_id, 2, list(Task))
        self.connection.commit()
        self.claims += found

    def work(self) -> None:
        """Begin if need be, with a lease that is soon over now and then, and take some steps."""
        job = self.some_claim()
        for _ in range(self.chance.randint(1, 5)):
            self.step(job)
            self.connection.commit()

    def step(self, job: ClaimedJob) -> None:
        lease = timedelta(milliseconds=20) if self.chance.random() < 0.05 else timedelta(minutes=1)
        stage = one(self.connection, "SELECT status FROM document_versions WHERE id = :id", id=job.version_id)
        try:
            begin_stage(
                self.connection,
                job.claim,
                Task.PARSE if stage in ("PARSING", "CHUNKING") else Task.EMBED,
                self.worker_id,
                lease,
            )
            self.connection.commit()
        except DomainError:
            self.connection.rollback()
        if stage == "PARSING":
            record_parsed(self.connection, job.claim, Text("some text"), "0" * 64, 9)
        elif stage == "CHUNKING":
            record_chunks(self.connection, job.claim, [Passage("some ", 0, 5, 1, 1), Passage("text", 5, 9, 1, 1)])
        elif stage == "EMBEDDING":
            chunks = load_chunks_without_embedding(self.connection, job.version_id)
            record_embeddings(self.connection, job.claim, [chunk.id for chunk in chunks], [[1, 2, 3]] * len(chunks))

    def complete(self) -> None:
        ready = column(self.connection, "SELECT id FROM document_versions WHERE status = 'STORING'")
        self.connection.commit()
        complete_attempt(self.connection, self.some_claim(ready).claim)

    def fail(self) -> None:
        fail_attempt(self.connection, self.some_claim().claim, TIMED_OUT)

    def fail_for_good(self) -> None:
        fail_attempt(self.connection, self.some_claim().claim, CORRUPT)

    def release(self) -> None:
        release_attempt(self.connection, self.some_claim().claim)

    def release_lost(self) -> None:
        release_unbegun(self.connection, self.chance.choice(list(Task)), timedelta(milliseconds=300))

    def extend(self) -> None:
        extend_leases(self.connection, [job.claim for job in self.claims[-8:]], timedelta(minutes=1))

    def recover(self) -> None:
        recover_expired_leases(self.connection)

    def retry(self) -> None:
        retry_version(self.connection, self.some(STOPPED))

    def cancel(self) -> None:
        cancel_document(self.connection, self.some(DOCUMENTS))

    def delete(self) -> None:
        delete_document(self.connection, self.some(DOCUMENTS))

    def enqueue(self) -> None:
        names = self.chance.sample(NAMES, self.chance.randint(1, 3))
        enqueue_documents(self.connection, [Upload("ann", name, "file:///x") for name in names], self.model_id)


def test_random_transitions_on_three_documents_never_deadlock(
    committed: Indexing, connect: Connect, background: ThreadPoolExecutor
) -> None:
    committed.retry_at_once()
    committed.connection.commit()
    claims: list[ClaimedJob] = []
    actors = [Actor(committed, connect(), claims, seed) for seed in range(THREADS)]
    done: Counter[str] = Counter()
    for actor in background.map(Actor.act, actors):
        assert actor.errors == []
        done += actor.done
    assert done.keys() >= {"claim", "work", "complete", "enqueue", "release", "recover", "cancel", "delete"}, done
    assert done.total() > 150, done
    assert check_invariants(committed.connection, newest=None) == []
