"""Prometheus metrics: of this process as it works, of the database when they are asked for."""

import logging
import threading
from collections.abc import Iterator
from time import monotonic

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy import Connection

from api.database import Database
from domain.metrics import AttemptCount, JobCount, StageSeconds, attempt_counts, job_counts, stage_seconds
from domain.statuses import Task
from domain.wake import longest_due_seconds

log = logging.getLogger(__name__)

KEPT_SECONDS = 10.0
"""Two of the questions scan a table: however many monitors ask, they are asked once in this time."""

STATEMENT_TIMEOUT_MS = 10_000

OF_PROCESS = CollectorRegistry()
ANSWERED = Counter("holdfast_http_requests", "requests answered", ["method", "route", "status"], registry=OF_PROCESS)
SECONDS = Histogram("holdfast_http_request_seconds", "time to the end of the answer", ["route"], registry=OF_PROCESS)
IN_PROGRESS = Gauge("holdfast_http_requests_in_progress", "requests being answered", registry=OF_PROCESS)
LISTENING = Gauge("holdfast_notification_listeners", "open WebSockets", registry=OF_PROCESS)


class DatabaseMetrics(Collector):
    """What the rows say, kept for a moment."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._asking = threading.Lock()
        self._asked_at = -KEPT_SECONDS
        self._families: list[Metric] = []

    def collect(self) -> Iterator[Metric]:
        """The figures; ``holdfast_database_up`` 0 and nothing else while they cannot be had."""
        with self._asking:
            if monotonic() - self._asked_at >= KEPT_SECONDS:
                try:
                    self._families = self._database.run(families, STATEMENT_TIMEOUT_MS)
                    self._asked_at = monotonic()
                except Exception as error:  # noqa: BLE001 - the process's own figures are told all the same
                    log.warning("the database has no figures now: %s", type(error).__name__)
                    self._families = [up(False)]
            yield from self._families


def exposition(database_metrics: DatabaseMetrics) -> bytes:
    """Everything, in Prometheus' text format."""
    of_database = CollectorRegistry(auto_describe=False)
    of_database.register(database_metrics)
    return generate_latest(OF_PROCESS) + generate_latest(of_database)


def families(connection: Connection) -> list[Metric]:
    """The database's figures."""
    due = {task: longest_due_seconds(connection, [task]) or 0.0 for task in Task}
    return [
        up(True),
        of_jobs(job_counts(connection)),
        of_attempts(attempt_counts(connection)),
        of_due(due),
        *of_stages(stage_seconds(connection)),
    ]


def up(is_up: bool) -> Metric:
    return GaugeMetricFamily("holdfast_database_up", "whether the database answered", float(is_up))


def of_jobs(counts: list[JobCount]) -> Metric:
    family = GaugeMetricFamily("holdfast_jobs", "jobs by status, live ones by stage", labels=["status", "stage"])
    for one in counts:
        family.add_metric([one.status, one.stage or ""], one.count)
    return family


def of_attempts(counts: list[AttemptCount]) -> Metric:
    family = GaugeMetricFamily(
        "holdfast_attempts", "attempts by how they ended", labels=["status", "outcome", "failure_type"]
    )
    for one in counts:
        family.add_metric([one.status, one.outcome or "", one.failure_type or ""], one.count)
    return family


def of_due(seconds: dict[Task, float]) -> Metric:
    family = GaugeMetricFamily(
        "holdfast_oldest_due_job_seconds", "for how long the oldest due job has waited, 0 if none", labels=["task"]
    )
    for task, value in seconds.items():
        family.add_metric([task], value)
    return family


def of_stages(times: list[StageSeconds]) -> list[Metric]:
    quantiles = GaugeMetricFamily(
        "holdfast_stage_seconds", "how long stages took, of the latest 5,000 events", labels=["stage", "quantile"]
    )
    counts = GaugeMetricFamily("holdfast_stage_samples", "how many stages those figures are of", labels=["stage"])
    for one in times:
        quantiles.add_metric([one.stage, "0.5"], one.median)
        quantiles.add_metric([one.stage, "0.95"], one.p95)
        counts.add_metric([one.stage], one.count)
    return [quantiles, counts]
