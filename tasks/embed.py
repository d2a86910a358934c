"""``tasks.embed``: the stages EMBEDDING and STORING of one version."""

from functools import partial

from domain.begin import StageRun, begin_stage
from domain.complete import complete_attempt
from domain.record import load_chunks_without_embedding, record_embeddings
from domain.release import release_attempt
from domain.statuses import Task, VersionStatus
from tasks.app import app
from tasks.database import run_transaction
from tasks.dispatch import wake_if_due
from tasks.messages import send_news_hint
from tasks.models import embedder_for
from tasks.recording import Run, RunFailed, recording_failure
from tasks.requests import StageTask


@app.task(name="tasks.embed", bind=True, base=StageTask, throws=(RunFailed,))
def embed(self: StageTask, job_id: int) -> str | None:
    """Embed the chunks of this job's version that have no embedding yet, then complete the job.

    A version that is STORING has them all, and is completed without asking the provider. A run that used
    half its time limit gives the job back after storing a batch: the limit bounds a run, not a document.
    """
    claim = self.claim_of(job_id)
    with recording_failure(claim) as run:
        begun = run_transaction(lambda c: begin_stage(c, claim, Task.EMBED, self.worker_id, self.lease))
        # Half the hard limit; of a short one, well before the soft limit strikes.
        seconds = min(self.hard_seconds / 2, self.soft_seconds * 0.75)
        done = begun.stage == VersionStatus.STORING or embed_missing(begun, run, seconds)
        if done:
            run_transaction(lambda c: complete_attempt(c, claim))
            run.log_moved(VersionStatus.STORING, VersionStatus.INDEXED)
            send_news_hint()
        else:
            run_transaction(lambda c: release_attempt(c, claim))
            run.log_moved(VersionStatus.EMBEDDING, "RELEASED")
    wake_if_due()
    return run.result


def embed_missing(begun: StageRun, run: Run, seconds: float) -> bool:
    """Embed and store batch by batch; False when ``seconds`` ran out before the last one."""
    embedder = embedder_for(begun.model)
    chunks = run_transaction(lambda c: load_chunks_without_embedding(c, begun.version_id))
    for batch in embedder.batches(chunks):
        vectors = embedder.embed_passages([chunk.text for chunk in batch])  # the slow part: no transaction is open
        ids = [chunk.id for chunk in batch]
        if run_transaction(partial(record_embeddings, claim=begun.claim, chunk_ids=ids, vectors=list(vectors))):
            run.log_moved(VersionStatus.EMBEDDING, VersionStatus.STORING)
            return True
        if run.seconds > seconds:
            return False
    return True
