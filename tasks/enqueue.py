"""``tasks.enqueue_document``: accept a document by message, for callers that cannot reach the database."""

import logging
import random
import time
from functools import partial

from domain.enqueue import Upload
from domain.enqueue import enqueue_document as enqueue
from domain.failures import FailureType, clean_error_message
from settings import settings
from stages.store import StorageUriRefused, open_store
from tasks.app import app
from tasks.database import run_transaction
from tasks.messages import send_claim_hint
from tasks.models import configured_model_id
from tasks.recording import RunFailed, classify
from tasks.requests import StageTask

log = logging.getLogger(__name__)

LONGEST_PAUSE = 15.0  # s between tries while the database is away


@app.task(name="tasks.enqueue_document", bind=True, base=StageTask, throws=(RunFailed,))
def enqueue_document(
    self: StageTask,
    owner_id: str,
    name: str,
    storage_uri: str,
    content_sha256: str | None = None,
    request_id: str | None = None,
    max_retry_count: int | None = None,
    force: bool = False,
) -> str:
    """Accept a document for indexing; ``request_id`` defaults to the id of this message.

    Accepted once its row is committed; until then only the message knows it. So this waits for a database
    that is away, up to the task's time limit, and then ends FAILURE with its arguments in Flower.
    """
    upload = Upload(
        owner_id=owner_id,
        name=name,
        storage_uri=storage_uri,
        content_sha256=content_sha256,
        request_id=request_id or self.request.id,
        max_retry_count=settings().max_retry_count if max_retry_count is None else max_retry_count,
        force=force,
    )
    refuse_unreadable(storage_uri)
    pause = 0.5
    while True:
        try:
            result = run_transaction(partial(enqueue, upload=upload, model_id=configured_model_id()))
            break
        except Exception as error:  # noqa: BLE001 - judged below
            failure = classify(error)
            if failure is None or failure.type != FailureType.STORAGE_UNAVAILABLE:
                text = clean_error_message(str(error), type(error).__name__, settings().secrets)
                raise RunFailed(f"not accepted: {failure.message if failure else text}") from None
            log.warning("the database is away, the document waits in this message: %s", failure.message)
            time.sleep(pause * random.uniform(0.8, 1.2))  # noqa: S311 - spreads the waiting, guards nothing
            pause = min(LONGEST_PAUSE, pause * 2)
    if result.job_id is not None:
        log.info(
            "job_id=%d document_id=%d version_id=%d enqueued", result.job_id, result.document_id, result.version_id
        )
        send_claim_hint()
    return f"doc={result.document_id} version={result.version_no} {'unchanged' if result.unchanged else 'enqueued'}"


def refuse_unreadable(storage_uri: str) -> None:
    """Refuse a URI that no stage would be allowed to read, while its sender still looks.

    Raises:
        RunFailed: it is outside the configured store; the text says what is allowed.
    """
    try:
        open_store(settings().storage_url).refuse_outside(storage_uri)
    except StorageUriRefused as error:
        raise RunFailed(f"not accepted: {error}") from None
