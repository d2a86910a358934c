"""``tasks.parse``: the stages PARSING and CHUNKING of one version."""

from domain.begin import StageRun, begin_stage
from domain.record import load_parsed, record_chunks, record_parsed
from domain.statuses import Task, VersionStatus
from settings import settings
from stages.chunk import chunk
from stages.parse import parse as parse_content
from stages.store import Source, read_source
from tasks.app import app
from tasks.database import run_transaction
from tasks.dispatch import Dispatch, dispatch
from tasks.messages import stage_label
from tasks.recording import RunFailed, recording_failure
from tasks.requests import StageTask


@app.task(name="tasks.parse", bind=True, base=StageTask, throws=(RunFailed,))
def parse(self: StageTask, job_id: int) -> str | None:
    """Parse and chunk the version that this job indexes, then hand its claim on to ``tasks.embed``.

    A version that is CHUNKING already is not parsed again.
    """
    claim = self.claim_of(job_id)
    with recording_failure(claim) as run:
        begun = run_transaction(lambda c: begin_stage(c, claim, Task.PARSE, self.worker_id, self.lease))

        if begun.stage == VersionStatus.PARSING:
            source = read(begun)
            parsed = parse_content(source.content, begun.name)
            run_transaction(lambda c: record_parsed(c, claim, parsed, source.sha256, source.size_bytes))
            run.log_moved(VersionStatus.PARSING, VersionStatus.CHUNKING)

        stored = run_transaction(lambda c: load_parsed(c, begun.version_id))
        chunks = chunk(stored.text, stored.page_starts, stored.media_type, settings().max_chunks)
        run_transaction(lambda c: record_chunks(c, claim, chunks))
        run.log_moved(VersionStatus.CHUNKING, VersionStatus.EMBEDDING)

        label = stage_label(begun.document_id, begun.version_id, begun.retry_count, begun.max_retry_count)
        dispatch([Dispatch(Task.EMBED, claim, label)])
    return run.result


def read(begun: StageRun) -> Source:
    """The uploaded bytes, which must be those that were enqueued."""
    values = settings()
    return read_source(
        begun.storage_uri, values.storage_url, begun.content_sha256, begun.size_bytes, values.max_document_bytes
    )
