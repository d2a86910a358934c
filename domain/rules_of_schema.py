"""What must stand between a writer and the tables: triggers, constraints and indexes, present and switched on.

An owner can disable a trigger, or drop a constraint and forget it: from then on rows can go wrong. The lists are
what the migrations make; a test holds them equal.
"""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import (
    Boolean,
    ColumnElement,
    FromClause,
    Select,
    Text,
    and_,
    case,
    cast,
    column,
    func,
    literal_column,
    not_,
    select,
    table,
    values,
)
from sqlalchemy.dialects.postgresql import JSONB

from domain.rule import Rule
from domain.tables import models

TRIGGERS = {
    "chunks": "chunks_counted_in chunks_counted_out chunks_never_change",
    "claim_hints": "claim_hints_date_sending",
    "document_versions": "versions_guard versions_history versions_history_of_birth",
    "documents": "documents_guard documents_history",
    "embedding_jobs": "jobs_final_failure jobs_guard",
    "embeddings": "embeddings_deleted embeddings_inserted embeddings_never_change embeddings_switched",
    "indexing_attempts": "attempts_guard attempts_history attempts_history_of_birth",
    "indexing_events": "events_never_change",
    "notifications": "notifications_date_reading notifications_only_read",
    "parsed_texts": "parsed_texts_never_change parsed_texts_only_while_parsing",
    "processing_failures": "failures_never_change",
    "workers": "workers_guard",
}

COMMIT_CHECKS = {
    "document_versions": "versions_check",
    "documents": "documents_check",
    "embedding_jobs": "jobs_check",
    "indexing_attempts": "attempts_check",
}

CONSTRAINTS = {
    "chunks": "chunks_embedding_key chunks_not_blank chunks_number_not_negative chunks_number_once_per_version "
    "chunks_offsets_span_the_text chunks_page_positive chunks_pkey chunks_sha256_is_hex chunks_tokens_positive "
    "chunks_version_known",
    "claim_hints": "claim_hints_only_row claim_hints_pkey",
    "document_versions": "document_versions_pkey versions_counts_possible versions_document_key "
    "versions_embedding_key versions_indexed_iff_dated versions_job_key versions_media_type_length "
    "versions_model_known versions_number_once_per_document versions_number_positive "
    "versions_owner_is_documents_owner versions_request_id_length versions_request_once_per_owner "
    "versions_sha256_is_hex versions_size_not_negative versions_status_known versions_stopped_iff_stage_kept "
    "versions_stopped_stage_known versions_storage_uri_length",
    "documents": "documents_current_is_own_version documents_indexed_iff_current documents_name_length "
    "documents_owner_key documents_owner_length documents_pkey documents_status_known",
    "embedding_jobs": "embedding_jobs_pkey jobs_attempt_no_not_negative jobs_claimed_iff_processing "
    "jobs_ids_agree_with_version jobs_max_retry_count_sensible jobs_next_retry_only_while_pending "
    "jobs_retry_count_within_budget jobs_status_known jobs_task_known jobs_worker_known",
    "embedding_models": "embedding_models_pkey models_dimensions_fit_a_vector models_name_and_dimensions_once "
    "models_name_is_provider_and_model",
    "embeddings": "embeddings_chunk_is_versions_chunk embeddings_ids_agree_with_version embeddings_not_all_zero "
    "embeddings_pkey embeddings_status_known",
    "failure_policies": "failure_policies_pkey policies_base_delay_not_negative policies_factor_at_least_one "
    "policies_max_delay_at_least_base policies_type_is_a_word",
    "indexing_attempts": "attempts_claim_token_used_once attempts_error_message_length "
    "attempts_failed_iff_explained attempts_failed_stage_known attempts_failure_reason_is_a_word "
    "attempts_failure_type_known attempts_job_known attempts_number_once_per_job attempts_number_positive "
    "attempts_outcome_known attempts_retry_iff_dated attempts_runner_known attempts_started_iff_unfinished "
    "attempts_status_known attempts_worker_known indexing_attempts_pkey",
    "indexing_events": "indexing_events_pkey",
    "notifications": "notifications_document_known notifications_pkey notifications_type_known "
    "notifications_version_known",
    "parsed_texts": "parsed_texts_metadata_is_object parsed_texts_not_blank parsed_texts_pkey "
    "parsed_texts_version_known",
    "processing_failures": "failures_errors_are_a_list failures_job_known failures_one_per_job failures_type_known "
    "processing_failures_pkey",
    "workers": "workers_concurrency_positive workers_name_length workers_pkey",
}

INDEXES = {
    "documents": "documents_name_once_per_owner documents_of_owner",
    "embedding_jobs": "jobs_due jobs_leased jobs_live_of_document jobs_live_of_owner jobs_of_version "
    "jobs_one_live_per_version",
    "embeddings": "embeddings_active_of_owner embeddings_of_version",
    "indexing_attempts": "attempts_not_begun attempts_one_started_per_job",
    "indexing_events": "events_of_document",
    "notifications": "notifications_of_owner",
    "processing_failures": "failures_of_document failures_of_owner",
    "workers": "workers_running",
}

pg_trigger = table(
    "pg_trigger",
    *(
        column(name, Boolean if name == "tginitdeferred" else Text)
        for name in ("oid", "tgrelid", "tgname", "tgenabled", "tgconstraint", "tginitdeferred")
    ),
    schema="pg_catalog",
)
pg_constraint = table(
    "pg_constraint",
    *(
        column(name, Boolean if name == "convalidated" else Text)
        for name in ("oid", "conrelid", "conname", "convalidated")
    ),
    schema="pg_catalog",
)
pg_index = table("pg_index", column("indexrelid", Text), column("indisvalid", Boolean), schema="pg_catalog")


def schema_rules() -> list[Rule]:
    return [
        trigger_rule(TRIGGERS, deferred=False),
        trigger_rule(COMMIT_CHECKS, deferred=True),
        constraint_rule(),
        index_rule(),
        model_index_rule(),
    ]


def expected(names: Mapping[str, str]) -> FromClause:
    rows = [(of_table, name) for of_table, listed in names.items() for name in listed.split()]
    return values(column("table", Text), column("name", Text), name="expected").data(rows)


def is_off(enabled: ColumnElement[str]) -> ColumnElement[bool]:
    """Whether a trigger does not fire for ordinary sessions: D is disabled, R fires in replicas only."""
    return cast(enabled, Text).in_(["D", "R"])


def named(wanted: FromClause, state: ColumnElement[str]) -> Select[Any]:
    """The expected names that are not in order. ``state`` is null where one is."""
    return (
        select(wanted.c.name.label("row_id"), wanted.c.name, wanted.c.table, state.label("state"))
        .select_from(wanted)
        .where(state.is_not(None))
    )


def trigger_rule(names: Mapping[str, str], deferred: bool) -> Rule:
    wanted = expected(names)
    state = case(
        (pg_trigger.c.oid.is_(None), "missing"),
        (is_off(pg_trigger.c.tgenabled), "disabled"),
        (pg_trigger.c.tginitdeferred != deferred, "not deferred" if deferred else "deferred"),
    )
    return Rule(
        "{name}",
        "{table}",
        named(wanted, state).outerjoin(
            pg_trigger,
            and_(pg_trigger.c.tgrelid == func.to_regclass(wanted.c.table), pg_trigger.c.tgname == wanted.c.name),
        ),
        "the trigger {name} is {state}",
        "as the owner: ALTER TABLE {table} ENABLE TRIGGER {name}; where it is missing, make it again as "
        "migrations/versions does",
    )


def constraint_rule() -> Rule:
    wanted = expected(CONSTRAINTS)
    # The triggers behind a foreign key; DISABLE TRIGGER ALL takes them too.
    off = select(pg_trigger.c.oid).where(
        pg_trigger.c.tgconstraint == pg_constraint.c.oid, is_off(pg_trigger.c.tgenabled)
    )
    # Since PostgreSQL 18 a constraint can be NOT ENFORCED; before, there is no such column.
    as_json = cast(func.to_jsonb(literal_column("pg_constraint")), JSONB)
    state = case(
        (pg_constraint.c.oid.is_(None), "missing"),
        (as_json["conenforced"].astext == "false", "not enforced"),
        (not_(pg_constraint.c.convalidated), "not validated"),
        (off.exists(), "disabled"),
    )
    return Rule(
        "{name}",
        "{table}",
        named(wanted, state).outerjoin(
            pg_constraint,
            and_(
                pg_constraint.c.conrelid == func.to_regclass(wanted.c.table),
                pg_constraint.c.conname == wanted.c.name,
            ),
        ),
        "the constraint {name} is {state}",
        "as the owner: ALTER TABLE {table} VALIDATE CONSTRAINT {name}, or ENABLE TRIGGER ALL as a superuser; where it "
        "is missing, make it again as migrations/versions does",
    )


def index_rule() -> Rule:
    wanted = expected(INDEXES)
    state = case((pg_index.c.indexrelid.is_(None), "missing"), (not_(pg_index.c.indisvalid), "not valid"))
    return Rule(
        "{name}",
        "{table}",
        named(wanted, state).outerjoin(pg_index, pg_index.c.indexrelid == func.to_regclass(wanted.c.name)),
        "the index {name} is {state}",
        "as the owner: REINDEX INDEX CONCURRENTLY {name}; where it is missing, make it again as migrations/versions "
        "does",
    )


def model_index_rule() -> Rule:
    name = func.concat("embeddings_of_model_", models.c.id)
    state = case((pg_index.c.indexrelid.is_(None), "missing"), (not_(pg_index.c.indisvalid), "not valid"))
    return Rule(
        "models_have_their_index",
        "embedding_models",
        select(models.c.id.label("row_id"), models.c.name.label("model"), name.label("index"), state.label("state"))
        .select_from(models)
        .outerjoin(pg_index, pg_index.c.indexrelid == func.to_regclass(name))
        .where(models.c.dimensions <= 4000, state.is_not(None)),
        "the index {index} of {model} is {state}: large owners are searched slowly",
        "as the owner: make the index {index} again as register_model does",
    )
