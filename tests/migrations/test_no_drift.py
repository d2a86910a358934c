"""What the code says about the tables is what the migrations made."""

import re
from enum import StrEnum

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, Table, inspect, text
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects.postgresql.base import ischema_names
from sqlalchemy.types import TypeEngine

from domain import tables
from domain.failures import FailureType
from domain.statuses import (
    STAGES,
    AttemptStatus,
    DocumentStatus,
    EmbeddingStatus,
    JobStatus,
    Outcome,
    Task,
    VersionStatus,
)

ischema_names["xid8"] = tables.Xid8  # SQLAlchemy itself does not know it


def type_name(type_: "TypeEngine[object]") -> str:
    return type_.compile(dialect=postgresql.dialect())  # type: ignore[no-untyped-call]


def columns_in_code(table: Table) -> dict[str, tuple[str, bool, str | None]]:
    return {
        column.name: (
            type_name(column.type),
            bool(column.nullable),
            None if column.computed is None else squeezed(str(column.computed.sqltext)),
        )
        for column in table.columns
    }


def columns_in_database(connection: Connection, table: str) -> dict[str, tuple[str, bool, str | None]]:
    return {
        column["name"]: (
            type_name(column["type"]),
            column["nullable"],
            squeezed(column["computed"]["sqltext"]) if "computed" in column else None,
        )
        for column in inspect(connection).get_columns(table)
    }


def squeezed(expression: str) -> str:
    return re.sub(r"\s+", " ", expression).lower()


def test_the_code_knows_every_table(connection: Connection) -> None:
    assert set(inspect(connection).get_table_names()) == {*tables.metadata.tables, "alembic_version"}


@pytest.mark.parametrize("name", tables.metadata.tables)
def test_a_table_has_the_columns_types_and_nulls_that_the_code_says(connection: Connection, name: str) -> None:
    assert columns_in_code(tables.metadata.tables[name]) == columns_in_database(connection, name)


@pytest.mark.parametrize("name", tables.metadata.tables)
def test_a_table_has_the_primary_key_that_the_code_says(connection: Connection, name: str) -> None:
    in_code = [column.name for column in tables.metadata.tables[name].primary_key]
    assert in_code == inspect(connection).get_pk_constraint(name)["constrained_columns"]


def test_alembic_finds_no_column_to_change(connection: Connection) -> None:
    context = MigrationContext.configure(connection, opts={"compare_type": True})
    # Keys and indexes are in the migrations alone: what Alembic would drop is not compared.
    differences = [
        difference
        for difference in compare_metadata(context, tables.metadata)
        if not (isinstance(difference, tuple) and difference[0].startswith("remove_"))
    ]
    assert differences == []


CHECKS = {
    "documents_status_known": DocumentStatus,
    "versions_status_known": VersionStatus,
    "jobs_status_known": JobStatus,
    "jobs_task_known": Task,
    "attempts_status_known": AttemptStatus,
    "attempts_outcome_known": Outcome,
    "embeddings_status_known": EmbeddingStatus,
}


def words_of(connection: Connection, check: str) -> set[str]:
    definition = connection.execute(
        text("SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = :check"), {"check": check}
    ).scalar_one()
    return set(re.findall(r"'([^']*)'", definition))


@pytest.mark.parametrize("check", CHECKS)
def test_an_enumeration_has_the_words_of_its_check(connection: Connection, check: str) -> None:
    enumeration: type[StrEnum] = CHECKS[check]
    assert words_of(connection, check) == set(enumeration)


def test_stages_are_the_words_of_the_checks_on_stages(connection: Connection) -> None:
    assert words_of(connection, "attempts_failed_stage_known") == set(STAGES)
    assert words_of(connection, "versions_stopped_stage_known") == {VersionStatus.UPLOADED, *STAGES}


def test_failure_types_are_the_rows_of_the_policy(connection: Connection) -> None:
    rows = connection.execute(text("SELECT failure_type FROM failure_policies")).scalars()
    assert sorted(rows) == sorted(FailureType)


def test_every_check_on_a_list_of_words_is_held_here(connection: Connection) -> None:
    known = connection.execute(
        text("SELECT conname FROM pg_constraint WHERE contype = 'c' AND conname LIKE '%\\_known'")
    ).scalars()
    others = {"attempts_failed_stage_known", "versions_stopped_stage_known", "notifications_type_known"}
    assert set(known) == CHECKS.keys() | others
