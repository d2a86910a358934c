"""``tasks.claim``: take due jobs, and send each one's stage message."""

import logging

from domain.claim import ClaimedJob, claim_jobs
from domain.statuses import Task
from tasks.app import app
from tasks.database import run_transaction
from tasks.dispatch import Dispatch, dispatch
from tasks.messages import send_claim_hint, stage_label
from tasks.requests import NotRegistered, StageTask

log = logging.getLogger(__name__)

LIMIT = 20


@app.task(name="tasks.claim", bind=True, base=StageTask, throws=(NotRegistered,))
def claim(self: StageTask) -> str:
    """Claim due jobs for the fleet: one transaction, then one message per job."""
    worker_id = self.worker_id
    jobs = run_transaction(lambda connection: claim_jobs(connection, worker_id, LIMIT, tuple(Task)))
    for job in jobs:
        log.info("job_id=%d attempt_id=%d claimed stage=%s", job.claim.job_id, job.claim.attempt_id, job.stage)
    dispatch(waiting(job) for job in jobs)
    if len(jobs) == LIMIT:
        send_claim_hint()  # there may be more
    return f"{len(jobs)} jobs"


def waiting(job: ClaimedJob) -> Dispatch:
    label = stage_label(job.document_id, job.version_id, job.retry_count, job.max_retry_count)
    return Dispatch(job.task, job.claim, label)
