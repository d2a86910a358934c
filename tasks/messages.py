"""Messages: hints and nothing more. Each is sent after the commit of what it is about, and may be lost."""

import logging
from typing import Any

from kombu import Connection as Broker
from kombu.exceptions import ChannelError

from domain.held import Claim
from domain.statuses import Task
from tasks.app import app
from tasks.requests import claim_headers

log = logging.getLogger(__name__)

CLAIM_QUEUE = "claim"
NEWS_CHANNEL = "holdfast.news"
NO_SUCH_QUEUE = "404"


def send_stage(task: Task, claim: Claim, label: str, broker: Broker | None = None) -> None:
    """Tell a worker of that task's queue that a claimed stage waits for it.

    Args:
        label: what Flower shows in place of the arguments; ids and counts only.

    Raises:
        kombu.exceptions.OperationalError: the broker cannot be reached.
    """
    app.send_task(
        f"tasks.{task}",
        (claim.job_id,),
        headers=claim_headers(claim),
        argsrepr=label,
        connection=broker,
    )


def stage_label(document_id: int, version_id: int, retry_count: int, max_retry_count: int) -> str:
    """``doc=7 version=9 attempt 2 of 4``: what people read about a stage run."""
    return f"doc={document_id} version={version_id} attempt {retry_count + 1} of {max_retry_count + 1}"


def send_claim_hint() -> None:
    """Ask some worker to claim due jobs. Never raises: the rows are committed, the supervisors' hints follow."""
    try:
        broker: Any = app.pool.acquire(block=True, timeout=5)
        with broker:
            hint_unless_waiting(broker)
    except Exception as error:  # noqa: BLE001
        log.warning("the broker cannot be told, due jobs wait for the next hint: %s", type(error).__name__)


def send_news_hint() -> None:
    """Tell the API's processes that an owner has a new notification. Never raises: they look by themselves too.

    A publication on Redis, which needs no queue; another broker has none, and the look each second serves alone.
    """
    try:
        broker: Any = app.pool.acquire(block=True, timeout=5)
        with broker:
            client = getattr(broker.default_channel, "client", None)
            if client is not None:
                client.publish(NEWS_CHANNEL, "")
    except Exception as error:  # noqa: BLE001
        log.warning("listeners cannot be told, they find the news by themselves: %s", type(error).__name__)


def hint_unless_waiting(broker: Broker) -> None:
    """Send a ``tasks.claim`` message if none waits in the queue already.

    Hints therefore cannot pile up behind long stages. They carry no expiry, which would depend on how well
    the clocks of two machines agree.

    Raises:
        kombu.exceptions.OperationalError: the broker cannot be reached.
    """
    if waiting_messages(broker, CLAIM_QUEUE) == 0:
        app.send_task("tasks.claim", connection=broker, retry=False)


def waiting_messages(broker: Broker, queue: str) -> int:
    """How many messages wait in ``queue``, by a passive declare, which every broker answers.

    Redis says 404 of an empty queue.
    """
    channel: Any = broker.default_channel
    try:
        return int(channel.queue_declare(queue=queue, passive=True).message_count)
    except ChannelError as error:
        if str(error.reply_code) == NO_SUCH_QUEUE:
            return 0
        raise
