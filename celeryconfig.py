"""What Celery is told, and why. Every value that depends on the place comes from ``settings.py``."""

import sys

from kombu import Queue

from settings import SettingsInvalid, settings

try:
    _settings = settings()
except SettingsInvalid as error:
    # It is a SystemExit with a code, of which Python prints nothing by itself.
    print(error, file=sys.stderr)
    raise


def _limits(hard_seconds: int) -> dict[str, int]:
    """The hard limit kills the child; the soft one, 30 s before, lets it record why (half of a short limit)."""
    return {"time_limit": hard_seconds, "soft_time_limit": max(hard_seconds - 30, hard_seconds // 2)}


broker_url = _settings.redis_url.get_secret_value()
broker_connection_retry_on_startup = True  # servers may start in any order
broker_connection_max_retries = None  # and stay away for any time
broker_transport_options = {
    # A link whose other end vanished without a FIN is noticed by these.
    "socket_timeout": 15,
    "socket_connect_timeout": 3,
    "socket_keepalive": True,
    "health_check_interval": 10,
    # Unused: nothing stays unacknowledged. Above every hard limit all the same.
    "visibility_timeout": 2 * 86_400,
}

# The row is the job: a message may be lost. Nothing unacknowledged and nothing prefetched is also the one
# setting under which a worker of Celery 5.7.0 survives the loss of its broker (tests/end_to_end).
task_acks_late = False
worker_prefetch_multiplier = 1
worker_disable_prefetch = True
task_reject_on_worker_lost = False
task_retry_on_worker_lost = False
worker_cancel_long_running_tasks_on_connection_loss = False

# The database holds every state; a result backend would be a second, weaker truth.
task_ignore_result = True
task_serializer = "json"
result_serializer = "json"
accept_content = ["json"]

imports = ("tasks.enqueue", "tasks.claim", "tasks.parse", "tasks.embed")
task_queues = tuple(Queue(name, routing_key=name) for name in ("claim", "parse", "embed"))
task_default_queue = "claim"
task_default_routing_key = "claim"
task_create_missing_queues = False  # a typing error fails, instead of making a queue nobody serves
task_routes = {
    "tasks.enqueue_document": {"queue": "claim"},
    "tasks.claim": {"queue": "claim"},
    "tasks.parse": {"queue": "parse"},
    "tasks.embed": {"queue": "embed"},
}
# Heartbeats say that a child lives, not that it gets on: the hard limit is the bound on that.
task_annotations = {
    "tasks.enqueue_document": _limits(300),
    "tasks.claim": _limits(60),
    "tasks.parse": _limits(_settings.parse_time_limit_seconds),
    "tasks.embed": _limits(_settings.embed_time_limit_seconds),
}
# A publish must not hang while the broker is away; the supervisor's next hint makes up for it.
task_publish_retry_policy = {"max_retries": 2, "interval_start": 0, "interval_step": 0.2, "interval_max": 0.5}

# Flower shows running and queued tasks without a flag on either side.
worker_send_task_events = True
task_send_sent_event = True

# One strange message or one dead child must not end the main process: see there.
worker_consumer = "tasks.hardened:Consumer"
worker_pool = "tasks.hardened:TaskPool"

worker_max_tasks_per_child = 200  # native parsers leak
worker_max_memory_per_child = 1_000_000  # KiB; looked at when a task ends
worker_proc_alive_timeout = 60.0  # s; a child of a busy machine needs more than the default 4 to come up
worker_soft_shutdown_timeout = 0.0  # SIGQUIT gives back what runs at once: waiting helps no document

enable_utc = True
timezone = "UTC"
