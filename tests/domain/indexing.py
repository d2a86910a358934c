"""A worker for tests: takes documents through the domain's functions, one step a method."""

from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal

from sqlalchemy import Connection, select, text

from domain.begin import begin_stage
from domain.claim import ClaimedJob, claim_jobs
from domain.complete import AttemptCompleted, complete_attempt
from domain.enqueue import Enqueued, Upload, enqueue_document, register_model
from domain.fail import AttemptFailed, fail_attempt
from domain.failures import Failure, FailureType
from domain.held import Claim
from domain.policy import FailurePolicy, set_policy
from domain.record import load_chunks_without_embedding, record_chunks, record_embeddings, record_parsed
from domain.statuses import Task, VersionStatus
from domain.tables import jobs, versions
from domain.workers import note_worker_seen, register_worker

LEASE = timedelta(minutes=1)


@dataclass(frozen=True)
class Text:
    text: str
    page_starts: tuple[int, ...] = ()
    title: str | None = None
    metadata: dict[str, str] = field(default_factory=dict)
    media_type: str = "text/plain"


@dataclass(frozen=True)
class Passage:
    text: str
    char_start: int
    char_end: int
    page_no: int | None
    token_count: int


class Indexing:
    """A worker and a model with three dimensions; every step runs in the connection's transaction."""

    def __init__(self, connection: Connection, dimensions: int = 3) -> None:
        self.connection = connection
        self.model_id = register_model(connection, f"test:model-{dimensions}", dimensions)
        self.dimensions = dimensions
        self.worker_id = register_worker(connection, "worker-1", ["claim", "parse", "embed"], concurrency=1000)

    def upload(
        self, name: str = "report.txt", owner_id: str = "ann", content: str = "0", max_retry_count: int = 3
    ) -> Enqueued:
        sha256 = content.encode().hex().rjust(64, "0")
        upload = Upload(owner_id, name, f"file:///{name}", sha256, max_retry_count=max_retry_count)
        return enqueue_document(self.connection, upload, self.model_id)

    def claim(self) -> ClaimedJob:
        """Claim the job that has been due longest."""
        note_worker_seen(self.connection, self.worker_id)  # a test can take longer than a worker may be silent
        [claimed] = claim_jobs(self.connection, self.worker_id, 1, list(Task))
        return claimed

    def begin(self, claimed: ClaimedJob, task: Task | None = None) -> Claim:
        begin_stage(self.connection, claimed.claim, task or claimed.task, self.worker_id, LEASE)
        return claimed.claim

    def parse(self, claim: Claim, passages: list[str]) -> None:
        sha256 = self.connection.execute(
            select(versions.c.content_sha256)
            .join(jobs, jobs.c.version_id == versions.c.id)
            .where(jobs.c.id == claim.job_id)
        ).scalar_one()
        record_parsed(self.connection, claim, Text("".join(passages)), sha256 or "0" * 64, 1)

    def chunk(self, claim: Claim, passages: list[str]) -> None:
        start, chunks = 0, []
        for passage in passages:
            chunks.append(Passage(passage, start, start + len(passage), 1, 1))
            start += len(passage)
        record_chunks(self.connection, claim, chunks)

    def embed(self, claimed: ClaimedJob, vectors: list[list[float]] | None = None, most: int = 1000) -> None:
        """Embed up to ``most`` chunks that have no vector yet."""
        chunks = load_chunks_without_embedding(self.connection, claimed.version_id)[:most]
        vectors = vectors or [[1.0, *[0.0] * (self.dimensions - 1)]] * len(chunks)
        record_embeddings(self.connection, claimed.claim, [chunk.id for chunk in chunks], vectors)

    def bring_to(
        self,
        stage: VersionStatus,
        passages: list[str] | None = None,
        vectors: list[list[float]] | None = None,
    ) -> ClaimedJob:
        """Claim the job that has been due longest and take it to the beginning of this stage, or to INDEXED."""
        passages = passages or ["first passage ", "second passage"]
        claimed = self.claim()
        claim = self.begin(claimed)
        if stage == VersionStatus.PARSING:
            return claimed
        if claimed.stage == VersionStatus.PARSING:
            self.parse(claim, passages)
        if stage == VersionStatus.CHUNKING:
            return claimed
        if claimed.stage in (VersionStatus.PARSING, VersionStatus.CHUNKING):
            self.chunk(claim, passages)
            self.begin(claimed, Task.EMBED)
        if stage == VersionStatus.EMBEDDING:
            return claimed
        if claimed.stage != VersionStatus.STORING:
            self.embed(claimed, vectors)
        if stage == VersionStatus.INDEXED:
            self.complete(claimed)
        return claimed

    def index(
        self,
        name: str = "report.txt",
        owner_id: str = "ann",
        passages: list[str] | None = None,
        vectors: list[list[float]] | None = None,
        content: str = "0",
    ) -> Enqueued:
        """Upload a document and make it searchable."""
        uploaded = self.upload(name, owner_id, content)
        self.bring_to(VersionStatus.INDEXED, passages, vectors)
        return uploaded

    def complete(self, claimed: ClaimedJob) -> AttemptCompleted:
        return complete_attempt(self.connection, claimed.claim)

    def fail(
        self,
        claimed: ClaimedJob,
        type: FailureType = FailureType.STORAGE_UNAVAILABLE,
        reason: str | None = None,
        message: str = "the store did not answer",
    ) -> AttemptFailed:
        return fail_attempt(self.connection, claimed.claim, Failure(type, message, reason))

    def retry_at_once(self) -> None:
        """Let every retry be due at once."""
        for failure_type in (FailureType.STORAGE_UNAVAILABLE, FailureType.WORKER_INTERNAL_ERROR):
            set_policy(
                self.connection,
                FailurePolicy(failure_type, True, timedelta(0), Decimal(1), timedelta(0)),
            )

    def check_commit(self) -> None:
        """Run the commit checks now."""
        self.connection.execute(text("SET CONSTRAINTS ALL IMMEDIATE"))
        self.connection.execute(text("SET CONSTRAINTS ALL DEFERRED"))
