"""Whom each function keeps waiting: a busy document is not in the way of the work on its versions."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from sqlalchemy import Connection, text

from domain.begin import begin_stage
from domain.claim import ClaimedJob, claim_jobs
from domain.lease import extend_leases
from domain.record import record_chunks, record_embeddings, record_parsed
from domain.release import release_attempt, release_unbegun
from domain.statuses import Task, VersionStatus
from tests.conftest import Connect
from tests.domain.indexing import Indexing, Passage, Text
from tests.domain.rows import column

pytestmark = pytest.mark.race

Act = Callable[[Connection, ClaimedJob], object]

LEASE = timedelta(minutes=1)


def embed(connection: Connection, job: ClaimedJob) -> None:
    ids = column(connection, "SELECT id FROM chunks WHERE version_id = :version", version=job.version_id)
    record_embeddings(connection, job.claim, ids, [[1.0, 2.0, 3.0]] * len(ids))


# The stage at which each may run, None for a job that waits, and the call.
WITHOUT_THE_DOCUMENT: dict[str, tuple[VersionStatus | str | None, Act]] = {
    "claim": (None, lambda c, job: claim_jobs(c, job.claim.worker_id, 10, list(Task))),
    "begin": ("CLAIMED", lambda c, job: begin_stage(c, job.claim, Task.PARSE, job.claim.worker_id, LEASE)),
    "extend": (VersionStatus.PARSING, lambda c, job: extend_leases(c, [job.claim], LEASE)),
    "record the text": (
        VersionStatus.PARSING,
        lambda c, job: record_parsed(c, job.claim, Text("text"), "0" * 62 + "30", 4),
    ),
    "record the chunks": (
        VersionStatus.CHUNKING,
        lambda c, job: record_chunks(c, job.claim, [Passage("first", 0, 5, None, 1)]),
    ),
    "record the embeddings": (VersionStatus.EMBEDDING, embed),
    "release": (VersionStatus.PARSING, lambda c, job: release_attempt(c, job.claim)),
    "release what was lost": ("CLAIMED", lambda c, _: release_unbegun(c, Task.PARSE, timedelta(0))),
}


@pytest.mark.parametrize("what", WITHOUT_THE_DOCUMENT)
def test_the_work_on_a_version_waits_for_no_lock_on_its_document_and_takes_none(
    committed: Indexing, connect: Connect, what: str
) -> None:
    stage, act = WITHOUT_THE_DOCUMENT[what]
    committed.upload()
    if isinstance(stage, VersionStatus):
        job = committed.bring_to(stage)
    else:
        job = committed.claim()
        if stage is None:
            release_attempt(committed.connection, job.claim)
    committed.connection.commit()
    holder, working = connect(), connect()
    holder.execute(text("SELECT FROM documents FOR NO KEY UPDATE"))
    working.execute(text("SET LOCAL lock_timeout = '1ms'"))
    act(working, job)
    working.execute(text("SET CONSTRAINTS ALL IMMEDIATE"))  # what the commit would wait for
    holder.rollback()
    assert column(holder, "SELECT id FROM documents FOR NO KEY UPDATE SKIP LOCKED") == [job.document_id]
    working.commit()
