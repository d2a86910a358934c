"""Where two operations can meet: rows prepared once, and put back before every order."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal

from sqlalchemy import text

from domain.claim import ClaimedJob
from domain.failures import FailureType
from domain.policy import FailurePolicy, set_policy
from domain.statuses import VersionStatus
from domain.workers import register_worker
from tests.conftest import Engines
from tests.domain.indexing import Indexing

# In this order a row's references are there before it.
TABLES = (
    "documents",
    "document_versions",
    "embedding_jobs",
    "indexing_attempts",
    "parsed_texts",
    "chunks",
    "embeddings",
    "indexing_events",
    "processing_failures",
    "notifications",
)


@dataclass
class Scene:
    """One document; ``claimed`` are the jobs that workers hold, the oldest version's first."""

    indexing: Indexing
    other_worker_id: int
    force: Callable[[str], None]
    document_id: int = 0
    newest_version_id: int = 0
    newest_content: str = ""
    claimed: list[ClaimedJob] = field(default_factory=list)

    def upload(self, content: str = "0", max_retry_count: int = 3) -> None:
        self.newest_content = content
        made = self.indexing.upload(content=content, max_retry_count=max_retry_count)
        self.document_id, self.newest_version_id = made.document_id, made.version_id

    def bring_to(self, stage: VersionStatus) -> ClaimedJob:
        claimed = self.indexing.bring_to(stage)
        self.claimed.append(claimed)
        return claimed


def uploaded(scene: Scene) -> None:
    scene.upload()


def claimed(scene: Scene) -> None:
    scene.upload()
    scene.claimed.append(scene.indexing.claim())


def parsing(scene: Scene) -> None:
    scene.upload()
    scene.bring_to(VersionStatus.PARSING)


def chunking(scene: Scene) -> None:
    scene.upload()
    scene.bring_to(VersionStatus.CHUNKING)


def embedding(scene: Scene) -> None:
    scene.upload()
    scene.indexing.embed(scene.bring_to(VersionStatus.EMBEDDING), most=1)


def storing(scene: Scene) -> None:
    scene.upload()
    scene.bring_to(VersionStatus.STORING)


def expired(scene: Scene) -> None:
    storing(scene)
    expire(scene)


def expired_for_the_last_time(scene: Scene) -> None:
    scene.upload(max_retry_count=0)
    scene.bring_to(VersionStatus.STORING)
    expire(scene)


def expire(scene: Scene) -> None:
    scene.indexing.connection.commit()
    scene.force("UPDATE embedding_jobs SET lease_expires_at = clock_timestamp()")


def waiting_for_a_retry(scene: Scene) -> None:
    scene.upload()
    scene.indexing.fail(scene.bring_to(VersionStatus.STORING))


def failed(scene: Scene) -> None:
    scene.upload()
    scene.indexing.fail(scene.bring_to(VersionStatus.STORING), FailureType.DOCUMENT_CONTENT_INVALID)


def failed_behind_a_searchable_version(scene: Scene) -> None:
    scene.indexing.index()
    scene.upload("1")
    scene.indexing.fail(scene.bring_to(VersionStatus.EMBEDDING), FailureType.DOCUMENT_CONTENT_INVALID)


def superseding(scene: Scene) -> None:
    scene.indexing.index()
    scene.upload("1")
    scene.bring_to(VersionStatus.STORING)


def two_storing(scene: Scene) -> None:
    for content in "12":
        scene.upload(content)
        scene.bring_to(VersionStatus.STORING)


def two_superseding(scene: Scene) -> None:
    scene.indexing.index()
    two_storing(scene)


def two_storing_for_the_last_time(scene: Scene) -> None:
    for content in "12":
        scene.upload(content, max_retry_count=0)
        scene.bring_to(VersionStatus.STORING)


def one_storing_one_uploaded(scene: Scene) -> None:
    scene.upload("1")
    scene.bring_to(VersionStatus.STORING)
    scene.upload("2")


Prepare = Callable[[Scene], None]


class Stage:
    """A database where a scene is set once and put back again and again."""

    def __init__(self, engines: Engines) -> None:
        self._superuser = engines.superuser.connect()
        indexing = Indexing(engines.app.connect())
        other = register_worker(indexing.connection, "worker-2", ["claim", "parse", "embed"], concurrency=1000)
        for failure_type in (FailureType.STORAGE_UNAVAILABLE, FailureType.WORKER_INTERNAL_ERROR):
            delay = timedelta(0)
            set_policy(indexing.connection, FailurePolicy(failure_type, True, delay, Decimal(1), delay))
        self._new: Callable[[], Scene] = lambda: Scene(indexing, other, self.force)
        indexing.connection.commit()
        self._connection = indexing.connection
        self.force("CREATE SCHEMA IF NOT EXISTS kept")
        columns = self._superuser.execute(
            text(
                "SELECT table_name, string_agg(quote_ident(column_name), ', ') FROM information_schema.columns "
                "WHERE table_schema = 'public' AND is_generated = 'NEVER' GROUP BY 1"
            )
        )
        self._columns = {str(table): str(names) for table, names in columns}
        self._superuser.commit()

    def close(self) -> None:
        self._connection.close()
        self._superuser.close()

    def force(self, *statements: str) -> None:
        self._superuser.exec_driver_sql("; ".join(("SET session_replication_role = replica", *statements)))
        self._superuser.commit()

    def set(self, prepare: Prepare) -> Scene:
        self.force(*(f"DELETE FROM {table}" for table in TABLES))  # noqa: S608
        scene = self._new()
        prepare(scene)
        self._connection.commit()
        self.force(
            *(f"DROP TABLE IF EXISTS kept.{table}" for table in TABLES),
            *(f"CREATE TABLE kept.{table} AS TABLE {table}" for table in TABLES),
        )
        return scene

    def put_back(self) -> None:
        self.force(
            *(f"DELETE FROM {table}" for table in TABLES),  # noqa: S608
            *(
                f"INSERT INTO {table} ({self._columns[table]}) OVERRIDING SYSTEM VALUE "  # noqa: S608
                f"SELECT {self._columns[table]} FROM kept.{table}"
                for table in TABLES
            ),
            "UPDATE workers SET last_seen_at = clock_timestamp()",
        )
