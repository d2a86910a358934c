"""Foreign keys, rule 5 of the state machine: a superuser can write rows past them, and then nothing says so."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Column, FromClause, Table, and_, literal_column, not_, select

from domain.rule import REPAIR, Rule
from domain.tables import (
    attempts,
    chunks,
    documents,
    embeddings,
    jobs,
    models,
    notifications,
    parsed_texts,
    policies,
    processing_failures,
    versions,
    workers,
)

Columns = tuple[Column[Any], ...]

# Small enough to be judged whole.
KEYS: tuple[tuple[str, Columns, Columns], ...] = (
    (
        "versions_owner_is_documents_owner",
        (versions.c.document_id, versions.c.owner_id),
        (documents.c.id, documents.c.owner_id),
    ),
    ("versions_model_known", (versions.c.model_id,), (models.c.id,)),
    (
        "documents_current_is_own_version",
        (documents.c.current_version_id, documents.c.id),
        (versions.c.id, versions.c.document_id),
    ),
    (
        "jobs_ids_agree_with_version",
        (jobs.c.version_id, jobs.c.document_id, jobs.c.owner_id),
        (versions.c.id, versions.c.document_id, versions.c.owner_id),
    ),
    ("jobs_worker_known", (jobs.c.worker_id,), (workers.c.id,)),
    ("attempts_job_known", (attempts.c.job_id,), (jobs.c.id,)),
    ("attempts_worker_known", (attempts.c.worker_id,), (workers.c.id,)),
    ("attempts_runner_known", (attempts.c.run_by,), (workers.c.id,)),
    ("attempts_failure_type_known", (attempts.c.failure_type,), (policies.c.failure_type,)),
    ("failures_job_known", (processing_failures.c.job_id,), (jobs.c.id,)),
    ("failures_type_known", (processing_failures.c.failure_type,), (policies.c.failure_type,)),
    ("notifications_document_known", (notifications.c.document_id,), (documents.c.id,)),
    ("notifications_version_known", (notifications.c.version_id,), (versions.c.id,)),
)

# Of these only the newest rows are judged.
KEYS_OF_CONTENT: tuple[tuple[str, Columns, Columns], ...] = (
    ("parsed_texts_version_known", (parsed_texts.c.version_id,), (versions.c.id,)),
    ("chunks_version_known", (chunks.c.version_id,), (versions.c.id,)),
    (
        "embeddings_chunk_is_versions_chunk",
        (embeddings.c.chunk_id, embeddings.c.version_id),
        (chunks.c.id, chunks.c.version_id),
    ),
    (
        "embeddings_ids_agree_with_version",
        (embeddings.c.version_id, embeddings.c.owner_id, embeddings.c.model_id),
        (versions.c.id, versions.c.owner_id, versions.c.model_id),
    ),
)


def key_rules(newest: int | None) -> list[Rule]:
    """One rule for each foreign key; those of content look at the ``newest`` rows of each table only."""
    return [key_rule(*key, newest=None) for key in KEYS] + [key_rule(*key, newest=newest) for key in KEYS_OF_CONTENT]


def key_rule(name: str, child: Columns, parent: Columns, newest: int | None) -> Rule:
    table: Table = child[0].table
    rows: FromClause = table
    if newest is not None:
        [first, *_] = table.primary_key.columns
        needed = {column.name: column for column in (first, *child)}.values()
        rows = select(*needed).order_by(first.desc()).limit(newest).subquery("newest")
    columns: Sequence[Any] = [rows.c[column.name] for column in child]
    found = select(literal_column("1")).where(and_(*(a == b for a, b in zip(parent, columns, strict=True)))).exists()
    [first, *_] = table.primary_key.columns
    missing = select(
        rows.c[first.name].label("row_id"),
        *(column.label(f"key_{number}") for number, column in enumerate(columns)),
    ).where(and_(*(column.is_not(None) for column in columns)), not_(found))
    shown = ", ".join(f"{column.name} {{key_{number}}}" for number, column in enumerate(child))
    return Rule(name, table.name, missing, f"names a row of {parent[0].table} that is not there: {shown}", REPAIR)
