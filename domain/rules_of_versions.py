"""Rules between documents, versions and their latest jobs: 5 and 13 to 16 of the state machine."""

from sqlalchemy import and_, func, not_, or_, select
from sqlalchemy.dialects.postgresql import distinct_on

from domain.rule import RENEW, REPLACE, Rule
from domain.statuses import DocumentStatus, JobStatus, VersionStatus
from domain.tables import JOB_IS_LIVE, documents, jobs, parsed_texts, versions

ENDED = (VersionStatus.INDEXED, VersionStatus.FAILED, VersionStatus.CANCELLED)
STOPPED = (VersionStatus.FAILED, VersionStatus.CANCELLED)

VERSION = (versions.c.id.label("row_id"), versions.c.document_id, versions.c.status)
DOCUMENT = (documents.c.id.label("row_id"), documents.c.id.label("document_id"), documents.c.status)
LATEST_JOB = (
    select(jobs.c.version_id, jobs.c.status.label("job"), jobs.c.id)
    .ext(distinct_on(jobs.c.version_id))
    .order_by(jobs.c.version_id, jobs.c.id.desc())
    .subquery("latest_job")
)
CURRENT = versions.alias("current")
LIVE_JOB = select(jobs.c.id).where(jobs.c.document_id == documents.c.id, JOB_IS_LIVE).exists()
COUNTS = (versions.c.chunk_count, versions.c.embedding_count, versions.c.active_embedding_count)

RULES = (
    Rule(
        "versions_agree_with_latest_job",
        "document_versions",
        select(*VERSION, func.coalesce(LATEST_JOB.c.job, "missing").label("job"))
        .select_from(versions)
        .outerjoin(LATEST_JOB, LATEST_JOB.c.version_id == versions.c.id)
        .where(
            or_(
                and_(versions.c.status.in_(ENDED), LATEST_JOB.c.job.is_distinct_from(versions.c.status)),
                and_(
                    versions.c.status.not_in(ENDED),
                    func.coalesce(LATEST_JOB.c.job, "missing").not_in([JobStatus.PENDING, JobStatus.PROCESSING]),
                ),
            )
        ),
        "is {status}, while its latest job is {job}",
        REPLACE,
    ),
    Rule(
        "versions_stopped_have_no_active_embeddings",
        "document_versions",
        select(*VERSION, *COUNTS).where(versions.c.status.in_(STOPPED), versions.c.active_embedding_count > 0),
        "is {status} with {active_embedding_count} ACTIVE embeddings",
        RENEW,
    ),
    Rule(
        "versions_superseded_have_no_active_embeddings",
        "document_versions",
        select(*VERSION, *COUNTS)
        .select_from(versions)
        .join(documents, documents.c.id == versions.c.document_id)
        .where(
            versions.c.status == VersionStatus.INDEXED,
            versions.c.active_embedding_count > 0,
            documents.c.current_version_id.is_distinct_from(versions.c.id),
        ),
        "is not the current version of document {document_id} and has {active_embedding_count} ACTIVE embeddings",
        REPLACE,
    ),
    Rule(
        "versions_being_built_have_no_stale_embeddings",
        "document_versions",
        select(*VERSION, *COUNTS).where(
            versions.c.status.not_in(ENDED), versions.c.active_embedding_count != versions.c.embedding_count
        ),
        "is {status} with {active_embedding_count} of {embedding_count} embeddings ACTIVE, and can never complete",
        RENEW,
    ),
    Rule(
        "versions_chunking_has_text",
        "document_versions",
        select(*VERSION)
        .select_from(versions)
        .outerjoin(parsed_texts, parsed_texts.c.version_id == versions.c.id)
        .where(
            versions.c.status.in_([VersionStatus.CHUNKING, VersionStatus.EMBEDDING, VersionStatus.STORING]),
            parsed_texts.c.version_id.is_(None),
        ),
        "is {status} without its parsed text",
        RENEW,
    ),
    Rule(
        "versions_embedding_has_chunks",
        "document_versions",
        select(*VERSION).where(versions.c.status == VersionStatus.EMBEDDING, versions.c.chunk_count == 0),
        "is EMBEDDING without chunks",
        RENEW,
    ),
    Rule(
        "versions_storing_has_embeddings",
        "document_versions",
        select(*VERSION, *COUNTS).where(
            versions.c.status == VersionStatus.STORING,
            or_(versions.c.chunk_count == 0, versions.c.embedding_count != versions.c.chunk_count),
        ),
        "is STORING with {embedding_count} of {chunk_count} chunks embedded",
        RENEW,
    ),
    Rule(
        "versions_indexed_become_current",
        "document_versions",
        select(*VERSION)
        .select_from(versions)
        .join(documents, documents.c.id == versions.c.document_id)
        .outerjoin(CURRENT, CURRENT.c.id == documents.c.current_version_id)
        .where(
            versions.c.status == VersionStatus.INDEXED,
            documents.c.status != DocumentStatus.DELETED,
            documents.c.current_version_id.is_distinct_from(versions.c.id),
            func.coalesce(CURRENT.c.version_no, 0) < versions.c.version_no,
        ),
        "is INDEXED and newer than what document {document_id} shows",
        RENEW,
    ),
    Rule(
        "documents_pending_has_live_job",
        "documents",
        select(*DOCUMENT).where(documents.c.status == DocumentStatus.PENDING, not_(LIVE_JOB)),
        "is PENDING with no job to index it",
        RENEW,
    ),
    Rule(
        "documents_stopped_has_no_live_job",
        "documents",
        select(*DOCUMENT, jobs.c.id.label("job_id"))
        .select_from(documents)
        .join(jobs, jobs.c.document_id == documents.c.id)
        .where(
            JOB_IS_LIVE,
            documents.c.status.in_([DocumentStatus.FAILED, DocumentStatus.CANCELLED, DocumentStatus.DELETED]),
        ),
        "is {status}, while its job {job_id} is live",
        "celery -A tasks documents cancel {document_id}",
    ),
    Rule(
        "documents_deleted_have_no_content",
        "documents",
        select(*DOCUMENT, versions.c.id.label("version_id"))
        .select_from(documents)
        .join(versions, versions.c.document_id == documents.c.id)
        .outerjoin(parsed_texts, parsed_texts.c.version_id == versions.c.id)
        .where(
            documents.c.status == DocumentStatus.DELETED,
            or_(
                versions.c.chunk_count > 0,
                versions.c.embedding_count > 0,
                parsed_texts.c.version_id.is_not(None),
            ),
        ),
        "is DELETED, while its version {version_id} still has content",
        "SELECT delete_document_content({document_id})",
    ),
    Rule(
        "documents_current_is_complete",
        "documents",
        select(
            *DOCUMENT,
            CURRENT.c.id.label("version_id"),
            CURRENT.c.status.label("version_status"),
            CURRENT.c.chunk_count,
            CURRENT.c.active_embedding_count,
        )
        .select_from(documents)
        .join(CURRENT, CURRENT.c.id == documents.c.current_version_id)
        .where(
            or_(
                CURRENT.c.status != VersionStatus.INDEXED,
                CURRENT.c.chunk_count == 0,
                CURRENT.c.active_embedding_count != CURRENT.c.chunk_count,
            )
        ),
        "shows version {version_id}, which is {version_status} with {active_embedding_count} of {chunk_count} chunks "
        "ACTIVE",
        RENEW,
    ),
)
