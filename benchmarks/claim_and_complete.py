"""What the enforcement costs: a claim and its completion with every trigger, against the same statements without.

    python -m benchmarks.claim_and_complete [documents]

Prints milliseconds of the backend's CPU and of waiting for it, per claim with its completion. The bare tables are a
copy of the same rows whose triggers, CHECKs and foreign keys are dropped; indexes stay. Batches alternate, so that a
busy machine slows both alike.
"""

import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import psycopg
from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool

from domain.statuses import VersionStatus
from embedded.postgres import APPLICATION, DATABASE, SUPERUSER
from embedded.servers import Servers, start
from tests.database.lifecycle import release
from tests.database.states import version_in

BARE = "holdfast_bare"
BATCH = 25

CLAIM = (
    "UPDATE embedding_jobs SET status = 'PROCESSING', attempt_no = attempt_no + 1, next_retry_at = NULL, "
    "worker_id = (SELECT min(id) FROM workers), claim_token = gen_random_uuid(), "
    "lease_expires_at = clock_timestamp() + interval '10 minutes' WHERE id = %(job)s",
    "INSERT INTO indexing_attempts (job_id, attempt_no, worker_id, claim_token) "
    "SELECT id, attempt_no, worker_id, claim_token FROM embedding_jobs WHERE id = %(job)s",
)
COMPLETE = (
    "SELECT FROM embedding_jobs WHERE id = %(job)s FOR NO KEY UPDATE",
    "SELECT FROM document_versions WHERE id = %(version)s FOR NO KEY UPDATE",
    "SELECT FROM documents WHERE id = %(document)s FOR NO KEY UPDATE",
    # Without its trigger the row would have no end.
    "UPDATE indexing_attempts SET status = 'INDEXED', finished_at = clock_timestamp() "
    "WHERE job_id = %(job)s AND status = 'STARTED'",
    "UPDATE embedding_jobs SET status = 'INDEXED', worker_id = NULL, claim_token = NULL, lease_expires_at = NULL "
    "WHERE id = %(job)s",
    "UPDATE document_versions SET status = 'INDEXED' WHERE id = %(version)s",
    "UPDATE documents SET status = 'INDEXED', current_version_id = %(version)s WHERE id = %(document)s",
)
DROP_RULES = """
    DO $$
    DECLARE
        drop_ text;
    BEGIN
        FOR drop_ IN
            SELECT format('ALTER TABLE %s DROP CONSTRAINT %I', conrelid::regclass, conname) FROM pg_constraint
            WHERE connamespace = 'public'::regnamespace AND contype IN ('c', 'f')
            UNION ALL
            SELECT format('DROP TRIGGER %I ON %s', tgname, tgrelid::regclass) FROM pg_trigger WHERE NOT tgisinternal
        LOOP
            EXECUTE drop_;
        END LOOP;
    END $$
"""


@dataclass
class Cost:
    """Milliseconds per document of each batch; the median leaves out what other programs did meanwhile."""

    cpu: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)

    @property
    def cpu_ms(self) -> float:
        return median(self.cpu)

    @property
    def wall_ms(self) -> float:
        return median(self.wall)


def seed(servers: Servers, documents: int) -> list[dict[str, int]]:
    """Documents whose versions hold all their embeddings and wait to be claimed for their completion."""
    engine = create_engine(
        servers.postgres.url(APPLICATION).replace("postgresql://", "postgresql+psycopg://"), poolclass=NullPool
    )
    made = []
    with engine.connect() as connection:
        for _ in range(documents):
            waiting = version_in(connection, VersionStatus.STORING)
            release(connection, waiting)
            made.append({"job": waiting.job_id, "version": waiting.version_id, "document": waiting.document_id})
        connection.commit()
    return made


def measure(
    connection: "psycopg.Connection[tuple[object, ...]]", documents: Sequence[dict[str, int]], cost: Cost
) -> None:
    """Claim and complete these documents, a transaction each time."""
    cpu, wall = cpu_seconds(connection.info.backend_pid), time.perf_counter()
    for ids in documents:
        for transaction in (CLAIM, COMPLETE):
            for statement in transaction:
                connection.execute(statement, ids, prepare=True)
            connection.commit()
    cost.cpu.append(1000 * (cpu_seconds(connection.info.backend_pid) - cpu) / len(documents))
    cost.wall.append(1000 * (time.perf_counter() - wall) / len(documents))


def cpu_seconds(pid: int) -> float:
    """CPU time that a process has used; its first field is in nanoseconds."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def main(documents: int = 1000) -> None:
    with tempfile.TemporaryDirectory(prefix="holdfast-benchmark-") as folder, start(Path(folder)) as servers:
        seeded = seed(servers, documents)
        with servers.postgres.connect("postgres") as connection:
            servers.postgres.create_database(connection, BARE, template=DATABASE)
        with servers.postgres.connect(BARE) as connection:
            connection.execute(DROP_RULES)
        with (
            psycopg.connect(servers.postgres.url(APPLICATION), sslmode="disable") as enforced,
            psycopg.connect(servers.postgres.url(SUPERUSER, BARE), sslmode="disable") as bare,
        ):
            for connection in (enforced, bare):
                # The commit's wait for the disk is the same for both, and would hide the rest.
                connection.execute("SET synchronous_commit = off")
                connection.commit()
            costs = {"bare": Cost(), "enforced": Cost()}
            for first in range(0, documents, BATCH):
                batch = seeded[first : first + BATCH]
                if first == 0:  # plans are made and triggers compiled: once a session
                    measure(bare, batch, Cost())
                    measure(enforced, batch, Cost())
                    continue
                measure(bare, batch, costs["bare"])
                measure(enforced, batch, costs["enforced"])
    print(f"a claim and its completion, median of {len(costs['bare'].cpu)} batches of {BATCH}:")
    for name, cost in costs.items():
        print(f"  {name:<9}{cost.cpu_ms:6.2f} ms CPU of the backend{cost.wall_ms:7.2f} ms in all")
    cpu, cpu_before = costs["enforced"].cpu_ms, costs["bare"].cpu_ms
    wall, wall_before = costs["enforced"].wall_ms, costs["bare"].wall_ms
    print(
        f"  the rules{cpu - cpu_before:+6.2f} ms CPU, {cpu / cpu_before:.1f} times"
        f"{wall - wall_before:+11.2f} ms in all, {wall / wall_before:.1f} times"
    )


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:2]))
