-- The schema at the newest migration. Not to be edited: python -m tests.migrations.schema writes it.
--
-- PostgreSQL database dump
--

SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET transaction_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;

-- EXTENSION vector

CREATE EXTENSION IF NOT EXISTS vector WITH SCHEMA public;

-- COMMENT EXTENSION vector

COMMENT ON EXTENSION vector IS 'vector data type and ivfflat and hnsw access methods';

-- FUNCTION attempts_guard()

CREATE FUNCTION public.attempts_guard() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    AS $$
DECLARE
    job embedding_jobs;
    policy failure_policies;
    delay_seconds numeric;
BEGIN
    -- The job's row lock decides between an end and a competing end; the domain holds it already.
    SELECT * INTO job FROM embedding_jobs WHERE id = NEW.job_id FOR NO KEY UPDATE;
    IF TG_OP = 'INSERT' THEN
        IF NEW.status <> 'STARTED' OR job.status IS DISTINCT FROM 'PROCESSING'
            OR (NEW.attempt_no, NEW.worker_id, NEW.claim_token) IS DISTINCT FROM (job.attempt_no, job.worker_id, job.claim_token)
            OR num_nonnulls(NEW.run_by, NEW.stage_started_at, NEW.finished_at) > 0
        THEN
            PERFORM refuse('attempts_born_of_a_claim',
                format('an attempt of job %s is born STARTED, with the number, worker and token of its claim', NEW.job_id),
                'domain.claim.claim_jobs makes the row.');
        END IF;
        NEW.started_at := clock_timestamp();
        RETURN NEW;
    END IF;

    IF OLD.status <> 'STARTED' THEN
        PERFORM refuse('attempts_finished_never_change',
            format('attempt %s ended %s: its row is history', OLD.id, OLD.status));
    END IF;
    IF (NEW.id, NEW.job_id, NEW.attempt_no, NEW.worker_id, NEW.claim_token, NEW.started_at)
        IS DISTINCT FROM (OLD.id, OLD.job_id, OLD.attempt_no, OLD.worker_id, OLD.claim_token, OLD.started_at)
    THEN
        PERFORM refuse('attempts_identity_never_changes', format('attempt %s keeps its number, worker and token', OLD.id));
    END IF;

    IF NEW.status = 'STARTED' THEN
        IF NEW.stage_started_at IS DISTINCT FROM OLD.stage_started_at AND NEW.stage_started_at IS NOT NULL THEN
            IF OLD.stage_started_at IS NOT NULL THEN
                PERFORM refuse('attempts_stage_begins_once', format('the stage of attempt %s has begun already', OLD.id));
            END IF;
            NEW.stage_started_at := greatest(clock_timestamp(), job.updated_at);
        END IF;
        RETURN NEW;
    END IF;

    NEW.finished_at := clock_timestamp();
    IF NEW.status = 'INDEXED' AND (job.status <> 'PROCESSING' OR job.lease_expires_at <= clock_timestamp()) THEN
        PERFORM refuse('attempts_complete_within_lease',
            format('attempt %s cannot complete: the lease of job %s ended at %s', OLD.id, job.id, job.lease_expires_at));
    ELSIF NEW.status = 'FAILED' THEN
        SELECT * INTO policy FROM failure_policies WHERE failure_type = NEW.failure_type;
        IF NOT FOUND THEN
            PERFORM refuse('attempts_failure_type_known',
                format('%s is not a failure type: the rows of failure_policies are', coalesce(quote_literal(NEW.failure_type), 'nothing')));
        END IF;
        NEW.failed_stage := (SELECT v.status FROM document_versions v WHERE v.id = job.version_id);
        NEW.retryable := policy.retryable;
        NEW.max_retry_count := job.max_retry_count;
        IF policy.retryable AND job.retry_count < job.max_retry_count THEN
            -- The provider's Retry-After lengthens the delay; nothing lengthens it past the policy's longest.
            delay_seconds := least(
                greatest(
                    extract(epoch FROM policy.base_delay) * policy.factor ^ least(job.retry_count, 20),
                    extract(epoch FROM coalesce(NEW.retry_after, interval '0'))
                ),
                extract(epoch FROM policy.max_delay)
            );
            NEW.outcome := 'RETRY';
            NEW.retry_count := job.retry_count + 1;
            NEW.next_retry_at := NEW.finished_at + make_interval(secs => delay_seconds::double precision);
        ELSE
            NEW.outcome := 'FAILED';
            NEW.retry_count := job.retry_count;
            NEW.next_retry_at := NULL;
        END IF;
    END IF;
    RETURN NEW;
END $$;

-- FUNCTION attempts_history()

CREATE FUNCTION public.attempts_history() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    AS $$
DECLARE
    job record;
BEGIN
    IF NEW.status IN ('INDEXED', 'CANCELLED') THEN
        RETURN NULL;  -- the version says so itself
    END IF;
    -- Into variables, not INSERT ... SELECT: that would write nothing, and say nothing, if a row were missing.
    SELECT j.document_id, j.version_id, v.status AS stage INTO job
    FROM embedding_jobs j JOIN document_versions v ON v.id = j.version_id WHERE j.id = NEW.job_id;

    IF NEW.status IN ('STARTED', 'RELEASED') THEN
        INSERT INTO indexing_events (document_id, version_id, job_id, attempt_id, type, stage, detail) VALUES
            (job.document_id, job.version_id, NEW.job_id, NEW.id,
             CASE NEW.status WHEN 'STARTED' THEN 'CLAIMED' ELSE 'RELEASED' END,
             -- The claim that takes an uploaded version moves it to PARSING in the same transaction.
             CASE job.stage WHEN 'UPLOADED' THEN 'PARSING' ELSE job.stage END,
             jsonb_build_object('attempt_no', NEW.attempt_no, 'worker_id', NEW.worker_id));
    ELSIF NEW.status = 'FAILED' THEN
        INSERT INTO indexing_events (document_id, version_id, job_id, attempt_id, type, stage, detail) VALUES
            (job.document_id, job.version_id, NEW.job_id, NEW.id, NEW.failed_stage || '_FAILED', NEW.failed_stage,
             jsonb_build_object('attempt_no', NEW.attempt_no, 'failure_type', NEW.failure_type,
                                'failure_reason', NEW.failure_reason)),
            (job.document_id, job.version_id, NEW.job_id, NEW.id, NEW.outcome, NEW.failed_stage,
             CASE NEW.outcome
                 WHEN 'RETRY' THEN jsonb_build_object(
                     're_entry', CASE NEW.failed_stage
                         WHEN 'PARSING' THEN 'FILE_UPLOADED'
                         WHEN 'CHUNKING' THEN 'PARSING_COMPLETED'
                         WHEN 'EMBEDDING' THEN 'CHUNKING_COMPLETED'
                         ELSE 'EMBEDDING_COMPLETED'
                     END,
                     'delay_seconds', extract(epoch FROM NEW.next_retry_at - NEW.finished_at),
                     'next_retry_at', NEW.next_retry_at,
                     'retry_count', NEW.retry_count, 'max_retry_count', NEW.max_retry_count)
                 ELSE jsonb_build_object(
                     'retryable', NEW.retryable,
                     'retry_count', NEW.retry_count, 'max_retry_count', NEW.max_retry_count)
             END);
    END IF;
    RETURN NULL;
END $$;

-- FUNCTION check_at_commit()

CREATE FUNCTION public.check_at_commit() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    AS $$
BEGIN
    -- With an older snapshot a check would not see what it waited for.
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        PERFORM refuse('commits_are_read_committed',
            format('%s was changed in a %s transaction', TG_TABLE_NAME, current_setting('transaction_isolation')),
            'Use READ COMMITTED: the database locks what its checks depend on.');
    END IF;
    CASE TG_TABLE_NAME
    WHEN 'indexing_attempts' THEN
        PERFORM check_job(NEW.job_id);
    WHEN 'embedding_jobs' THEN
        PERFORM check_job(NEW.id);
        -- A claim or a postponement moves between live statuses and says nothing about version or document.
        IF TG_OP = 'INSERT' OR NEW.status NOT IN ('PENDING', 'PROCESSING') THEN
            PERFORM check_version(NEW.version_id);
            PERFORM check_document(NEW.document_id);
        END IF;
    WHEN 'document_versions' THEN
        PERFORM check_version(NEW.id);
    WHEN 'documents' THEN
        PERFORM check_document(NEW.id);
    END CASE;
    RETURN NULL;
END $$;

-- FUNCTION check_document(bigint)

CREATE FUNCTION public.check_document(document_id_ bigint) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    AS $$
DECLARE
    document documents;
    current_version document_versions;
    has_live_job boolean;
BEGIN
    SELECT * INTO document FROM documents WHERE id = document_id_ FOR NO KEY UPDATE;
    IF document.status <> 'INDEXED' THEN
        has_live_job := EXISTS (
            SELECT FROM embedding_jobs WHERE document_id = document_id_ AND status IN ('PENDING', 'PROCESSING'));
        IF document.status = 'PENDING' AND NOT has_live_job THEN
            PERFORM refuse('documents_pending_has_live_job', format('document %s is PENDING with no job to index it', document.id));
        ELSIF document.status IN ('FAILED', 'CANCELLED', 'DELETED') AND has_live_job THEN
            PERFORM refuse('documents_stopped_has_no_live_job',
                format('document %s is %s with a live job', document.id, document.status));
        END IF;
    END IF;
    IF document.status = 'DELETED' AND EXISTS (
        SELECT FROM document_versions v WHERE v.document_id = document_id_
            AND (v.chunk_count > 0 OR v.embedding_count > 0 OR EXISTS (SELECT FROM parsed_texts WHERE version_id = v.id))
    ) THEN
        PERFORM refuse('documents_deleted_have_no_content', format('document %s is DELETED with content left', document.id));
    END IF;
    IF document.current_version_id IS NOT NULL THEN
        SELECT * INTO current_version FROM document_versions WHERE id = document.current_version_id;
        IF current_version.status <> 'INDEXED' OR current_version.chunk_count = 0
            OR current_version.active_embedding_count <> current_version.chunk_count
        THEN
            PERFORM refuse('documents_current_is_complete',
                format('the current version %s of document %s is %s with %s of %s chunks ACTIVE', current_version.id,
                       document.id, current_version.status, current_version.active_embedding_count, current_version.chunk_count));
        END IF;
    END IF;
    IF EXISTS (
        SELECT FROM document_versions v WHERE v.document_id = document_id_ AND v.active_embedding_count > 0
            AND v.status IN ('INDEXED', 'FAILED', 'CANCELLED') AND v.id IS DISTINCT FROM document.current_version_id
    ) THEN
        PERFORM refuse('versions_superseded_have_no_active_embeddings',
            format('document %s has ACTIVE embeddings of a version that is not current', document.id));
    END IF;
END $$;

-- FUNCTION check_job(bigint)

CREATE FUNCTION public.check_job(job_id_ bigint) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    AS $$
DECLARE
    job embedding_jobs;
    attempt record;
BEGIN
    SELECT * INTO job FROM embedding_jobs WHERE id = job_id_ FOR NO KEY UPDATE;
    SELECT count(*) FILTER (WHERE status = 'STARTED') AS started,
           count(*) FILTER (WHERE outcome = 'RETRY') AS retries,
           max(status) FILTER (WHERE attempt_no = job.attempt_no) AS last_status,
           max(outcome) FILTER (WHERE attempt_no = job.attempt_no) AS last_outcome,
           bool_or(status = 'STARTED' AND worker_id = job.worker_id AND claim_token = job.claim_token) AS held
    INTO attempt FROM indexing_attempts WHERE job_id = job_id_;

    IF job.status = 'PROCESSING' AND attempt.held IS NOT TRUE THEN
        PERFORM refuse('jobs_processing_has_its_attempt',
            format('job %s is PROCESSING without a STARTED attempt of its worker and token', job.id));
    END IF;
    IF job.status <> 'PROCESSING' AND attempt.started > 0 THEN
        PERFORM refuse('attempts_started_has_its_job', format('job %s is %s with a STARTED attempt', job.id, job.status));
    END IF;
    IF (job.status = 'INDEXED') <> (attempt.last_status IS NOT DISTINCT FROM 'INDEXED') THEN
        PERFORM refuse('jobs_indexed_iff_last_attempt_is',
            format('job %s is %s and its last attempt %s', job.id, job.status, coalesce(attempt.last_status, 'missing')));
    END IF;
    IF (job.status = 'FAILED') <> (attempt.last_outcome IS NOT DISTINCT FROM 'FAILED') THEN
        PERFORM refuse('jobs_failed_iff_last_attempt_is',
            format('job %s is %s and its last attempt %s', job.id, job.status,
                   coalesce(attempt.last_outcome, attempt.last_status, 'missing')));
    END IF;
    IF job.retry_count <> attempt.retries THEN
        PERFORM refuse('jobs_retry_count_counts_retries',
            format('job %s counts %s retries; its attempts are %s', job.id, job.retry_count, attempt.retries));
    END IF;
END $$;

-- FUNCTION check_version(bigint)

CREATE FUNCTION public.check_version(version_id_ bigint) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    AS $$
DECLARE
    version document_versions;
    latest_job text;
    current_version bigint;
    current_no integer;
    document_status text;
BEGIN
    SELECT * INTO version FROM document_versions WHERE id = version_id_ FOR NO KEY UPDATE;
    SELECT status INTO latest_job FROM embedding_jobs WHERE version_id = version_id_ ORDER BY id DESC LIMIT 1;
    IF version.status IN ('INDEXED', 'FAILED', 'CANCELLED') AND latest_job IS DISTINCT FROM version.status
        OR version.status NOT IN ('INDEXED', 'FAILED', 'CANCELLED')
            AND coalesce(latest_job NOT IN ('PENDING', 'PROCESSING'), true)
    THEN
        PERFORM refuse('versions_agree_with_latest_job',
            format('version %s is %s and its latest job %s', version.id, version.status, coalesce(latest_job, 'missing')));
    END IF;
    IF version.status IN ('FAILED', 'CANCELLED') AND version.active_embedding_count > 0 THEN
        PERFORM refuse('versions_stopped_have_no_active_embeddings',
            format('version %s is %s with %s ACTIVE embeddings', version.id, version.status, version.active_embedding_count));
    ELSIF version.status IN ('EMBEDDING', 'STORING') AND version.active_embedding_count <> version.embedding_count THEN
        -- Embeddings go STALE with their version's end. One that did so earlier could never be completed.
        PERFORM refuse('versions_being_built_have_no_stale_embeddings',
            format('version %s is %s with %s of %s embeddings ACTIVE', version.id, version.status,
                   version.active_embedding_count, version.embedding_count),
            'domain.retry.retry_version makes the embeddings of a retried version ACTIVE again.');
    ELSIF version.status = 'EMBEDDING' AND version.chunk_count = 0 THEN
        PERFORM refuse('versions_embedding_has_chunks', format('version %s lost its chunks', version.id));
    ELSIF version.status = 'STORING' AND (version.chunk_count = 0 OR version.embedding_count <> version.chunk_count) THEN
        PERFORM refuse('versions_storing_has_embeddings', format('version %s lost embeddings', version.id));
    ELSIF version.status = 'INDEXED' THEN
        SELECT status, current_version_id INTO document_status, current_version
        FROM documents WHERE id = version.document_id FOR NO KEY UPDATE;
        IF current_version = version.id THEN
            IF version.chunk_count = 0 OR version.active_embedding_count <> version.chunk_count THEN
                PERFORM refuse('documents_current_is_complete',
                    format('version %s is what document %s shows, with %s of %s chunks ACTIVE', version.id,
                           version.document_id, version.active_embedding_count, version.chunk_count));
            END IF;
        ELSIF version.active_embedding_count > 0 THEN
            PERFORM refuse('versions_superseded_have_no_active_embeddings',
                format('version %s is not current and has %s ACTIVE embeddings', version.id, version.active_embedding_count));
        ELSIF document_status <> 'DELETED' THEN
            SELECT version_no INTO current_no FROM document_versions WHERE id = current_version;
            IF current_no IS NULL OR current_no < version.version_no THEN
                PERFORM refuse('versions_indexed_become_current',
                    format('version %s is INDEXED and newer than what document %s shows', version.id, version.document_id));
            END IF;
        END IF;
    END IF;
END $$;

-- FUNCTION chunks_counted()

CREATE FUNCTION public.chunks_counted() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    AS $$
DECLARE
    written record;
    stage text;
BEGIN
    FOR written IN SELECT version_id, count(*) AS rows FROM changed GROUP BY version_id ORDER BY version_id LOOP
        UPDATE document_versions
        SET chunk_count = chunk_count + CASE TG_OP WHEN 'INSERT' THEN written.rows ELSE -written.rows END
        WHERE id = written.version_id RETURNING status INTO stage;
        IF TG_OP = 'INSERT' AND stage <> 'CHUNKING' THEN
            PERFORM refuse('chunks_only_while_chunking',
                format('version %s is %s: its chunks are stored only while CHUNKING', written.version_id, stage));
        END IF;
    END LOOP;
    RETURN NULL;
END $$;

-- FUNCTION claim_hints_date_sending()

CREATE FUNCTION public.claim_hints_date_sending() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    AS $$
BEGIN
    NEW.sent_at := least(NEW.sent_at, clock_timestamp());
    RETURN NEW;
END $$;

-- FUNCTION delete_document_content(bigint)

CREATE FUNCTION public.delete_document_content(document_id_ bigint) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM documents WHERE id = document_id_ AND status = 'DELETED') THEN
        PERFORM refuse('content_deleted_with_its_document',
            format('document %s is not DELETED: its content stays', document_id_),
            'domain.delete.delete_document deletes a document and its content.');
    END IF;
    DELETE FROM embeddings WHERE version_id IN (SELECT id FROM document_versions WHERE document_id = document_id_);
    DELETE FROM chunks WHERE version_id IN (SELECT id FROM document_versions WHERE document_id = document_id_);
    DELETE FROM parsed_texts WHERE version_id IN (SELECT id FROM document_versions WHERE document_id = document_id_);
END $$;

-- FUNCTION documents_guard()

CREATE FUNCTION public.documents_guard() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        IF NEW.status <> 'PENDING' OR NEW.current_version_id IS NOT NULL THEN
            PERFORM refuse('documents_born_pending',
                format('a document is born PENDING and without a current version, not %s', NEW.status),
                'domain.enqueue.enqueue_document makes the row.');
        END IF;
        NEW.created_at := clock_timestamp();
        NEW.updated_at := NEW.created_at;
        RETURN NEW;
    END IF;

    IF (NEW.id, NEW.owner_id, NEW.name, NEW.created_at) IS DISTINCT FROM (OLD.id, OLD.owner_id, OLD.name, OLD.created_at) THEN
        PERFORM refuse('documents_identity_never_changes', format('document %s keeps its id, owner, name and birth', OLD.id));
    END IF;
    IF OLD.status <> NEW.status AND (OLD.status, NEW.status) NOT IN (
        ('PENDING',   'INDEXED'),    -- complete_attempt
        ('PENDING',   'FAILED'),     -- fail_attempt, for good
        ('PENDING',   'CANCELLED'),  -- cancel_document
        ('FAILED',    'PENDING'),    -- enqueue_document, retry_version
        ('CANCELLED', 'PENDING'),
        ('PENDING',   'DELETED'),    -- delete_document
        ('INDEXED',   'DELETED'),
        ('FAILED',    'DELETED'),
        ('CANCELLED', 'DELETED')
    ) THEN
        PERFORM refuse('documents_transition_known',
            format('document %s cannot go from %s to %s', OLD.id, OLD.status, NEW.status),
            'The functions of the room domain are the only ways: enqueue, complete, fail, cancel, retry, delete.');
    END IF;
    IF NEW.current_version_id IS DISTINCT FROM OLD.current_version_id THEN
        IF NEW.current_version_id IS NULL AND NEW.status <> 'DELETED' THEN
            PERFORM refuse('documents_current_never_dropped',
                format('document %s keeps its searchable version until a newer one is complete', OLD.id),
                'domain.delete.delete_document removes a document.');
        END IF;
        IF OLD.current_version_id IS NOT NULL
            AND (SELECT version_no FROM document_versions WHERE id = NEW.current_version_id)
                < (SELECT version_no FROM document_versions WHERE id = OLD.current_version_id)
        THEN
            PERFORM refuse('documents_current_never_goes_back',
                format('document %s cannot return from version %s to the older version %s',
                       OLD.id, OLD.current_version_id, NEW.current_version_id));
        END IF;
    END IF;
    NEW.updated_at := clock_timestamp();
    RETURN NEW;
END $$;

-- FUNCTION documents_history()

CREATE FUNCTION public.documents_history() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND NEW.current_version_id IS DISTINCT FROM OLD.current_version_id THEN
        INSERT INTO indexing_events (document_id, version_id, type, detail) VALUES
            (NEW.id, NEW.current_version_id, 'CURRENT_CHANGED',
             jsonb_build_object('old', OLD.current_version_id, 'new', NEW.current_version_id));
        IF NEW.current_version_id IS NOT NULL THEN
            INSERT INTO notifications (owner_id, document_id, version_id, type, payload)
            SELECT NEW.owner_id, NEW.id, v.id, 'DOCUMENT_INDEXED',
                   jsonb_build_object('name', NEW.name, 'versionNo', v.version_no, 'chunkCount', v.chunk_count,
                                      'searchable', true)
            FROM document_versions v WHERE v.id = NEW.current_version_id;
        END IF;
    END IF;
    IF TG_OP = 'INSERT' OR NEW.status <> OLD.status THEN
        INSERT INTO indexing_events (document_id, version_id, type)
        VALUES (NEW.id, NEW.current_version_id, 'DOCUMENT_' || NEW.status);
    END IF;
    RETURN NULL;
END $$;

-- FUNCTION embeddings_deleted()

CREATE FUNCTION public.embeddings_deleted() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    AS $$
DECLARE
    gone record;
BEGIN
    FOR gone IN
        SELECT version_id, count(*) AS rows, count(*) FILTER (WHERE status = 'ACTIVE') AS active
        FROM changed GROUP BY version_id ORDER BY version_id
    LOOP
        UPDATE document_versions
        SET embedding_count = embedding_count - gone.rows, active_embedding_count = active_embedding_count - gone.active
        WHERE id = gone.version_id;
    END LOOP;
    RETURN NULL;
END $$;

-- FUNCTION embeddings_inserted()

CREATE FUNCTION public.embeddings_inserted() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    AS $$
DECLARE
    wrong record;
    written record;
    stage text;
BEGIN
    SELECT e.chunk_id, m.name, m.dimensions, vector_dims(e.embedding) AS given INTO wrong
    FROM changed e JOIN embedding_models m ON m.id = e.model_id
    WHERE vector_dims(e.embedding) <> m.dimensions LIMIT 1;
    IF FOUND THEN
        PERFORM refuse('embeddings_have_models_dimensions',
            format('the embedding of chunk %s has %s dimensions; %s has %s', wrong.chunk_id, wrong.given, wrong.name, wrong.dimensions));
    END IF;
    IF EXISTS (SELECT FROM changed WHERE status <> 'ACTIVE') THEN
        PERFORM refuse('embeddings_born_active', 'an embedding is born ACTIVE');
    END IF;
    FOR written IN SELECT version_id, count(*) AS rows FROM changed GROUP BY version_id ORDER BY version_id LOOP
        UPDATE document_versions
        SET embedding_count = embedding_count + written.rows,
            active_embedding_count = active_embedding_count + written.rows
        WHERE id = written.version_id RETURNING status INTO stage;
        IF stage <> 'EMBEDDING' THEN
            PERFORM refuse('embeddings_only_while_embedding',
                format('version %s is %s: its embeddings are stored only while EMBEDDING', written.version_id, stage));
        END IF;
    END LOOP;
    RETURN NULL;
END $$;

-- FUNCTION embeddings_switched()

CREATE FUNCTION public.embeddings_switched() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    AS $$
DECLARE
    switched record;
    document bigint;
BEGIN
    FOR switched IN
        SELECT version_id, sum(active)::integer AS rows FROM (
            SELECT version_id, 1 AS active FROM after WHERE status = 'ACTIVE'
            UNION ALL
            SELECT version_id, -1 FROM before WHERE status = 'ACTIVE'
        ) AS each_row GROUP BY version_id HAVING sum(active) <> 0 ORDER BY version_id
    LOOP
        UPDATE document_versions SET active_embedding_count = active_embedding_count + switched.rows
        WHERE id = switched.version_id RETURNING document_id INTO document;
        INSERT INTO indexing_events (document_id, version_id, type, detail) VALUES
            (document, switched.version_id,
             CASE WHEN switched.rows > 0 THEN 'EMBEDDINGS_ACTIVE' ELSE 'EMBEDDINGS_STALE' END,
             jsonb_build_object('count', abs(switched.rows)));
    END LOOP;
    RETURN NULL;
END $$;

-- FUNCTION grant_application_role(name)

CREATE FUNCTION public.grant_application_role(role_ name) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    AS $$
DECLARE
    permission text;
    table_ regclass;
    columns text;
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = role_) THEN
        RAISE EXCEPTION 'the application role % does not exist', quote_ident(role_)
            USING ERRCODE = 'undefined_object',
                  HINT = format('CREATE ROLE %I LOGIN PASSWORD ''...'', or let DATABASE_URL name the role that migrates.', role_);
    END IF;
    -- PostgreSQL 14 and older let everyone create in public, and an upgrade keeps that. A function placed there
    -- could stand in for one of ours, and would run with the owner's rights.
    IF has_schema_privilege(role_, 'public', 'CREATE') AND NOT pg_has_role(role_, current_user, 'USAGE') THEN
        RAISE EXCEPTION 'the application role % may create objects in schema public', quote_ident(role_)
            USING ERRCODE = 'insufficient_privilege', HINT = 'REVOKE CREATE ON SCHEMA public FROM PUBLIC;';
    END IF;
    FOREACH permission IN ARRAY ARRAY[
        'USAGE ON SCHEMA public',
        'SELECT ON failure_policies, workers, embedding_models, documents, document_versions, embedding_jobs, '
            'indexing_attempts, parsed_texts, chunks, embeddings, indexing_events, processing_failures, '
            'notifications, claim_hints, alembic_version',
        'UPDATE ON workers, documents, embedding_jobs, indexing_attempts, embeddings, claim_hints',
        -- Never the counters: they are what completeness is judged by.
        'UPDATE (status, stopped_stage, content_sha256, media_type, size_bytes) ON document_versions',
        'UPDATE (retryable, base_delay, factor, max_delay) ON failure_policies',
        'UPDATE (read_at) ON notifications',
        'EXECUTE ON FUNCTION register_model(text, integer), delete_document_content(bigint)'
    ] LOOP
        EXECUTE format('GRANT %s TO %I', permission, role_);
    END LOOP;
    -- Every column but the database's own: ids, which OVERRIDING SYSTEM VALUE would let a caller choose, the
    -- counters, and the one time that no row trigger sets (embeddings come by the thousand).
    FOR table_, columns IN
        SELECT attrelid::regclass, string_agg(quote_ident(attname), ', ' ORDER BY attnum)
        FROM pg_attribute
        WHERE attrelid = ANY (ARRAY['workers', 'documents', 'document_versions', 'embedding_jobs', 'indexing_attempts',
                                    'parsed_texts', 'chunks', 'embeddings']::regclass[])
            AND attnum > 0 AND NOT attisdropped AND attidentity = '' AND attgenerated = ''
            AND attname NOT IN ('chunk_count', 'embedding_count', 'active_embedding_count')
            AND (attrelid, attname) <> ('embeddings'::regclass, 'created_at')
        GROUP BY attrelid
    LOOP
        EXECUTE format('GRANT INSERT (%s) ON %s TO %I', columns, table_, role_);
    END LOOP;
END $$;

-- FUNCTION jobs_final_failure()

CREATE FUNCTION public.jobs_final_failure() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    AS $$
DECLARE
    last indexing_attempts;
BEGIN
    SELECT * INTO last FROM indexing_attempts WHERE job_id = NEW.id AND attempt_no = NEW.attempt_no;
    INSERT INTO processing_failures
        (document_id, version_id, job_id, owner_id, stage, failure_type, retry_count, errors, final_failed_at)
    SELECT NEW.document_id, NEW.version_id, NEW.id, NEW.owner_id, last.failed_stage, last.failure_type, NEW.retry_count,
        jsonb_agg(jsonb_build_object(
            'attempt', a.attempt_no, 'stage', a.failed_stage, 'failureType', a.failure_type,
            'failureReason', a.failure_reason, 'errorMessage', a.error_message, 'timestamp', a.finished_at
        ) ORDER BY a.attempt_no),
        last.finished_at
    FROM indexing_attempts a WHERE a.job_id = NEW.id AND a.status = 'FAILED';

    INSERT INTO notifications (owner_id, document_id, version_id, type, payload)
    SELECT NEW.owner_id, NEW.document_id, NEW.version_id, 'DOCUMENT_FAILED',
        jsonb_build_object('name', d.name, 'versionNo', v.version_no, 'stage', last.failed_stage,
                           'failureType', last.failure_type, 'failureReason', last.failure_reason,
                           'errorMessage', last.error_message, 'searchable', d.current_version_id IS NOT NULL)
    FROM documents d JOIN document_versions v ON v.id = NEW.version_id WHERE d.id = NEW.document_id;
    RETURN NULL;
END $$;

-- FUNCTION jobs_guard()

CREATE FUNCTION public.jobs_guard() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    AS $$
DECLARE
    attempt indexing_attempts;
BEGIN
    IF TG_OP = 'INSERT' THEN
        IF NEW.status <> 'PENDING' OR NEW.attempt_no <> 0 OR NEW.retry_count <> 0 OR NEW.next_retry_at IS NOT NULL
            OR num_nonnulls(NEW.last_failure_type, NEW.last_failure_reason, NEW.last_error_message, NEW.last_failed_at) > 0
        THEN
            PERFORM refuse('jobs_born_pending',
                format('a job is born PENDING, due now and without a past, not %s', NEW.status),
                'domain.enqueue.enqueue_document and domain.retry.retry_version make the row.');
        END IF;
        -- The latest job of a version is the one with the highest id, and speaks for it.
        IF EXISTS (SELECT FROM embedding_jobs WHERE version_id = NEW.version_id AND id > NEW.id) THEN
            PERFORM refuse('jobs_latest_has_highest_id',
                format('a new job of version %s cannot have the id %s: an older job has a higher one', NEW.version_id, NEW.id),
                'Leave the id to the database.');
        END IF;
        NEW.created_at := clock_timestamp();
        NEW.updated_at := NEW.created_at;
        NEW.task := task_of_stage((SELECT coalesce(nullif(v.stopped_stage, 'UPLOADED'), v.status)
                                   FROM document_versions v WHERE v.id = NEW.version_id));
        RETURN NEW;
    END IF;

    IF OLD.status IN ('INDEXED', 'FAILED', 'CANCELLED') THEN
        PERFORM refuse('jobs_terminal_never_change',
            format('job %s ended %s: its row is history', OLD.id, OLD.status),
            'domain.retry.retry_version makes a new job for the version.');
    END IF;
    IF NEW.max_retry_count <> OLD.max_retry_count THEN
        PERFORM refuse('jobs_max_retry_count_never_changes', format('job %s keeps its budget of retries', OLD.id));
    END IF;
    IF (NEW.id, NEW.version_id, NEW.document_id, NEW.owner_id, NEW.created_at,
        NEW.last_failure_type, NEW.last_failure_reason, NEW.last_error_message, NEW.last_failed_at)
        IS DISTINCT FROM
       (OLD.id, OLD.version_id, OLD.document_id, OLD.owner_id, OLD.created_at,
        OLD.last_failure_type, OLD.last_failure_reason, OLD.last_error_message, OLD.last_failed_at)
    THEN
        PERFORM refuse('jobs_identity_never_changes',
            format('job %s keeps what it is for; its last error is copied from its attempts', OLD.id));
    END IF;
    IF NEW.task <> OLD.task THEN
        NEW.task := task_of_stage((SELECT v.status FROM document_versions v WHERE v.id = NEW.version_id));
    END IF;
    -- Strictly later each time, also when the system clock steps back: a lease may be shortened only by a
    -- stage that began after it was set, which is told by this time.
    NEW.updated_at := greatest(clock_timestamp(), OLD.updated_at + interval '1 microsecond');
    -- A dead worker's job is recovered when its lease ends, so every lease must end.
    IF NEW.lease_expires_at > greatest(clock_timestamp() + interval '1 day', OLD.lease_expires_at) THEN
        PERFORM refuse('jobs_lease_at_most_a_day',
            format('the lease of job %s cannot last until %s', OLD.id, NEW.lease_expires_at),
            'domain.lease.extend_leases renews a lease while its worker lives.');
    END IF;

    CASE
    WHEN OLD.status = 'PENDING' AND NEW.status = 'PENDING' THEN
        IF NEW.attempt_no <> OLD.attempt_no OR NEW.retry_count <> OLD.retry_count
            OR NEW.next_retry_at IS NULL AND OLD.next_retry_at IS NOT NULL
            OR NEW.next_retry_at < coalesce(OLD.next_retry_at, OLD.created_at)
            -- No policy can ask for more; a job put off to infinity would never run and never end.
            OR NEW.next_retry_at > greatest(clock_timestamp() + interval '30 days', OLD.next_retry_at)
        THEN
            PERFORM refuse('jobs_waiting_only_put_later',
                format('job %s waits: only its next_retry_at may change, and only to later, within 30 days', OLD.id),
                'Its time is the database''s own: the worker claims it when it is due.');
        END IF;
    WHEN OLD.status = 'PENDING' AND NEW.status = 'PROCESSING' THEN
        IF OLD.due_at > clock_timestamp() THEN
            PERFORM refuse('jobs_claimed_only_when_due', format('job %s is not due before %s', OLD.id, OLD.due_at));
        END IF;
        IF NEW.attempt_no <> OLD.attempt_no + 1 OR NEW.retry_count <> OLD.retry_count THEN
            PERFORM refuse('jobs_claim_is_the_next_attempt',
                format('a claim of job %s is attempt %s, and counts no retry', OLD.id, OLD.attempt_no + 1),
                'domain.claim.claim_jobs claims.');
        END IF;
    WHEN OLD.status = 'PROCESSING' AND NEW.status = 'PROCESSING' THEN
        IF (NEW.worker_id, NEW.claim_token, NEW.attempt_no, NEW.retry_count)
            IS DISTINCT FROM (OLD.worker_id, OLD.claim_token, OLD.attempt_no, OLD.retry_count)
        THEN
            PERFORM refuse('jobs_claim_never_changes_hands',
                format('job %s keeps its worker, token and counts while it is PROCESSING', OLD.id));
        END IF;
        IF NEW.lease_expires_at < OLD.lease_expires_at THEN
            -- A stage that begins trades its long dispatch lease for its run lease, once.
            SELECT * INTO attempt FROM indexing_attempts
                WHERE job_id = OLD.id AND attempt_no = OLD.attempt_no AND stage_started_at >= OLD.updated_at;
            IF NOT FOUND THEN
                PERFORM refuse('jobs_lease_only_grows', format('the lease of job %s cannot be shortened', OLD.id));
            END IF;
            NEW.updated_at := greatest(NEW.updated_at, attempt.stage_started_at + interval '1 microsecond');
        END IF;
    WHEN OLD.status = 'PROCESSING' AND NEW.status IN ('PENDING', 'INDEXED', 'FAILED') THEN
        SELECT * INTO attempt FROM indexing_attempts WHERE job_id = OLD.id AND attempt_no = OLD.attempt_no;
        IF NEW.attempt_no <> OLD.attempt_no OR NOT coalesce(CASE NEW.status
            WHEN 'PENDING' THEN
                attempt.outcome = 'RETRY' AND NEW.retry_count = OLD.retry_count + 1
                    AND NEW.next_retry_at = attempt.next_retry_at
                OR attempt.status = 'RELEASED' AND NEW.retry_count = OLD.retry_count AND NEW.next_retry_at IS NULL
            WHEN 'INDEXED' THEN attempt.status = 'INDEXED' AND NEW.retry_count = OLD.retry_count
            WHEN 'FAILED' THEN attempt.outcome = 'FAILED' AND NEW.retry_count = OLD.retry_count
        END, false) THEN
            PERFORM refuse('jobs_follow_their_attempt',
                format('job %s cannot go from %s to %s: its attempt %s is %s%s', OLD.id, OLD.status, NEW.status,
                       OLD.attempt_no, coalesce(attempt.status, 'missing'), coalesce(' with outcome ' || attempt.outcome, '')),
                'End the attempt first: domain.fail.fail_attempt, domain.complete.complete_attempt, domain.release.release_attempt.');
        END IF;
        IF attempt.status = 'FAILED' THEN
            NEW.last_failure_type := attempt.failure_type;
            NEW.last_failure_reason := attempt.failure_reason;
            NEW.last_error_message := attempt.error_message;
            NEW.last_failed_at := attempt.finished_at;
        END IF;
    WHEN NEW.status = 'CANCELLED' THEN
        IF (NEW.attempt_no, NEW.retry_count) IS DISTINCT FROM (OLD.attempt_no, OLD.retry_count) THEN
            PERFORM refuse('jobs_cancelled_keep_their_counts', format('job %s keeps its counts', OLD.id));
        END IF;
    ELSE
        PERFORM refuse('jobs_transition_known',
            format('job %s cannot go from %s to %s', OLD.id, OLD.status, NEW.status),
            'The functions of the room domain are the only ways: claim, complete, fail, release, cancel.');
    END CASE;
    RETURN NEW;
END $$;

-- FUNCTION notifications_date_reading()

CREATE FUNCTION public.notifications_date_reading() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    AS $$
BEGIN
    NEW.read_at := coalesce(OLD.read_at, CASE WHEN NEW.read_at IS NOT NULL THEN clock_timestamp() END);
    RETURN NEW;
END $$;

-- FUNCTION parsed_texts_only_while_parsing()

CREATE FUNCTION public.parsed_texts_only_while_parsing() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    AS $$
DECLARE
    stage text;
BEGIN
    SELECT status INTO stage FROM document_versions WHERE id = NEW.version_id FOR NO KEY UPDATE;
    IF stage IS DISTINCT FROM 'PARSING' THEN
        PERFORM refuse('parsed_texts_only_while_parsing',
            format('version %s is %s: its text is stored only while PARSING', NEW.version_id, stage));
    END IF;
    RETURN NEW;
END $$;

-- FUNCTION refuse(text, text, text)

CREATE FUNCTION public.refuse(rule text, message text, advice text DEFAULT NULL::text) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    AS $$
BEGIN
    IF advice IS NULL THEN
        RAISE EXCEPTION USING MESSAGE = message, ERRCODE = 'check_violation', CONSTRAINT = rule;
    END IF;
    RAISE EXCEPTION USING MESSAGE = message, ERRCODE = 'check_violation', CONSTRAINT = rule, HINT = advice;
END $$;

-- FUNCTION refuse_any_change()

CREATE FUNCTION public.refuse_any_change() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    AS $$
BEGIN
    PERFORM refuse(TG_NAME, format('rows of %s never change', TG_TABLE_NAME));
    RETURN NULL;
END $$;

-- FUNCTION register_model(text, integer)

CREATE FUNCTION public.register_model(name_ text, dimensions_ integer) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    AS $$
DECLARE
    model bigint;
    -- pgvector's HNSW holds a vector of at most 2,000 dimensions, a halfvec of 4,000; above, search is exact.
    kind text := CASE WHEN dimensions_ <= 2000 THEN 'vector' WHEN dimensions_ <= 4000 THEN 'halfvec' END;
BEGIN
    SELECT id INTO model FROM embedding_models WHERE name = name_ AND dimensions = dimensions_;
    IF FOUND THEN
        RETURN model;
    END IF;
    INSERT INTO embedding_models (name, dimensions) VALUES (name_, dimensions_)
        ON CONFLICT (name, dimensions) DO NOTHING RETURNING id INTO model;
    IF model IS NULL THEN
        RETURN (SELECT id FROM embedding_models WHERE name = name_ AND dimensions = dimensions_);
    END IF;
    IF kind IS NOT NULL THEN
        EXECUTE format(
            'CREATE INDEX %I ON embeddings USING hnsw ((embedding::%s(%s)) %s_cosine_ops) '
            'WHERE model_id = %s AND status = ''ACTIVE''',
            format('embeddings_of_model_%s', model), kind, dimensions_, kind, model);
    END IF;
    RETURN model;
END $$;

-- FUNCTION task_of_stage(text)

CREATE FUNCTION public.task_of_stage(stage text) RETURNS text
    LANGUAGE sql IMMUTABLE
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    AS $$
    SELECT CASE WHEN stage IN ('EMBEDDING', 'STORING') THEN 'embed' ELSE 'parse' END
$$;

-- FUNCTION versions_guard()

CREATE FUNCTION public.versions_guard() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        IF NEW.status <> 'UPLOADED' OR NEW.chunk_count <> 0 THEN
            PERFORM refuse('versions_born_uploaded',
                format('a version is born UPLOADED and without content, not %s', NEW.status),
                'domain.enqueue.enqueue_document makes the row.');
        END IF;
        -- Which version is the newest must not change under a retry, which locks the document too.
        PERFORM FROM documents WHERE id = NEW.document_id FOR NO KEY UPDATE;
        NEW.created_at := clock_timestamp();
        RETURN NEW;
    END IF;

    IF (NEW.id, NEW.document_id, NEW.owner_id, NEW.version_no, NEW.storage_uri, NEW.model_id, NEW.request_id, NEW.created_at)
        IS DISTINCT FROM
       (OLD.id, OLD.document_id, OLD.owner_id, OLD.version_no, OLD.storage_uri, OLD.model_id, OLD.request_id, OLD.created_at)
        -- Learned when the bytes are first read, then fixed.
        OR OLD.content_sha256 IS NOT NULL AND NEW.content_sha256 IS DISTINCT FROM OLD.content_sha256
        OR OLD.size_bytes IS NOT NULL AND NEW.size_bytes IS DISTINCT FROM OLD.size_bytes
        OR OLD.status <> 'PARSING' AND (NEW.content_sha256, NEW.size_bytes, NEW.media_type)
            IS DISTINCT FROM (OLD.content_sha256, OLD.size_bytes, OLD.media_type)
    THEN
        PERFORM refuse('versions_identity_never_changes',
            format('version %s keeps what it was made from: new content is a new version', OLD.id),
            'domain.enqueue.enqueue_document makes a new version.');
    END IF;
    IF NEW.status = OLD.status THEN
        IF (NEW.stopped_stage, NEW.indexed_at) IS DISTINCT FROM (OLD.stopped_stage, OLD.indexed_at) THEN
            PERFORM refuse('versions_stopped_stage_kept',
                format('version %s keeps its stopped stage and its date while it stays %s', OLD.id, OLD.status));
        END IF;
        RETURN NEW;
    END IF;

    IF OLD.status IN ('FAILED', 'CANCELLED') THEN
        IF NEW.status <> OLD.stopped_stage THEN
            PERFORM refuse('versions_transition_known',
                format('version %s cannot go from %s to %s: it goes on at %s, where it stopped',
                       OLD.id, OLD.status, NEW.status, OLD.stopped_stage),
                'domain.retry.retry_version retries a version.');
        END IF;
        PERFORM FROM documents WHERE id = OLD.document_id FOR NO KEY UPDATE;
        IF EXISTS (SELECT FROM document_versions WHERE document_id = OLD.document_id AND version_no > OLD.version_no) THEN
            PERFORM refuse('versions_only_newest_retried',
                format('version %s is not the newest of document %s and is not retried', OLD.id, OLD.document_id));
        END IF;
        NEW.stopped_stage := NULL;
    ELSIF (OLD.status, NEW.status) NOT IN (
        ('UPLOADED',  'PARSING'),    -- claim_jobs
        ('PARSING',   'CHUNKING'),   -- record_parsed
        ('CHUNKING',  'EMBEDDING'),  -- record_chunks
        ('EMBEDDING', 'STORING'),    -- record_embeddings
        ('STORING',   'INDEXED'),    -- complete_attempt
        ('PARSING',   'FAILED'),     -- fail_attempt, for good
        ('CHUNKING',  'FAILED'),
        ('EMBEDDING', 'FAILED'),
        ('STORING',   'FAILED'),
        ('UPLOADED',  'CANCELLED'),  -- cancel_document, delete_document
        ('PARSING',   'CANCELLED'),
        ('CHUNKING',  'CANCELLED'),
        ('EMBEDDING', 'CANCELLED'),
        ('STORING',   'CANCELLED')
    ) THEN
        PERFORM refuse('versions_transition_known',
            format('version %s cannot go from %s to %s', OLD.id, OLD.status, NEW.status),
            'The functions of the room domain are the only ways: claim, record, complete, fail, cancel, retry.');
    END IF;

    IF NEW.status IN ('FAILED', 'CANCELLED') THEN
        NEW.stopped_stage := OLD.status;
    ELSIF NEW.status = 'CHUNKING' AND NOT EXISTS (SELECT FROM parsed_texts WHERE version_id = NEW.id) THEN
        PERFORM refuse('versions_chunking_has_text', format('version %s has no parsed text to chunk', OLD.id));
    ELSIF NEW.status = 'EMBEDDING' AND NEW.chunk_count = 0 THEN
        PERFORM refuse('versions_embedding_has_chunks', format('version %s has no chunks to embed', OLD.id));
    ELSIF NEW.status = 'STORING' AND NEW.embedding_count <> NEW.chunk_count THEN
        PERFORM refuse('versions_storing_has_embeddings',
            format('version %s has %s of %s chunks embedded', OLD.id, NEW.embedding_count, NEW.chunk_count));
    ELSIF NEW.status = 'INDEXED' THEN
        IF NEW.chunk_count = 0 OR NEW.embedding_count <> NEW.chunk_count THEN
            PERFORM refuse('versions_indexed_is_complete',
                format('version %s has %s of %s chunks embedded', OLD.id, NEW.embedding_count, NEW.chunk_count));
        END IF;
        NEW.indexed_at := clock_timestamp();
    END IF;
    RETURN NEW;
END $$;

-- FUNCTION versions_history()

CREATE FUNCTION public.versions_history() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    AS $$
DECLARE
    event text;
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO indexing_events (document_id, version_id, type, detail) VALUES
            (NEW.document_id, NEW.id, 'FILE_UPLOADED', jsonb_build_object('version_no', NEW.version_no));
        RETURN NULL;
    END IF;
    -- The job's queue follows the stage, so that each is claimed for the workers that can run it. A retried
    -- version may have got its job before or after it moved.
    IF NEW.status = 'EMBEDDING' OR OLD.status IN ('FAILED', 'CANCELLED') THEN
        UPDATE embedding_jobs SET task = task_of_stage(NEW.status)
        WHERE version_id = NEW.id AND status IN ('PENDING', 'PROCESSING') AND task <> task_of_stage(NEW.status);
    END IF;

    event := CASE
        WHEN OLD.status IN ('FAILED', 'CANCELLED') THEN 'MANUAL_RETRY'
        WHEN NEW.status IN ('INDEXED', 'CANCELLED') THEN NEW.status
        WHEN NEW.status IN ('CHUNKING', 'EMBEDDING', 'STORING') THEN OLD.status || '_COMPLETED'
    END;  -- UPLOADED to PARSING is the claim's event, FAILED the attempt's
    IF event IS NOT NULL THEN
        INSERT INTO indexing_events (document_id, version_id, job_id, type, stage, detail) VALUES
            (NEW.document_id, NEW.id, (SELECT max(id) FROM embedding_jobs WHERE version_id = NEW.id), event,
             CASE WHEN OLD.status IN ('FAILED', 'CANCELLED') THEN NEW.status ELSE OLD.status END,
             CASE OLD.status
                 WHEN 'CHUNKING' THEN jsonb_build_object('chunks', NEW.chunk_count)
                 WHEN 'EMBEDDING' THEN jsonb_build_object('embeddings', NEW.embedding_count)
                 ELSE '{}'
             END);
    END IF;
    RETURN NULL;
END $$;

-- FUNCTION workers_guard()

CREATE FUNCTION public.workers_guard() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        NEW.started_at := clock_timestamp();
        NEW.last_seen_at := NEW.started_at;
        NEW.stopped_at := NULL;
        RETURN NEW;
    END IF;
    IF (NEW.id, NEW.name, NEW.started_at) IS DISTINCT FROM (OLD.id, OLD.name, OLD.started_at)
        OR OLD.stopped_at IS NOT NULL AND NEW.stopped_at IS DISTINCT FROM OLD.stopped_at
    THEN
        PERFORM refuse('workers_identity_never_changes',
            format('worker %s keeps its name and times: register a new worker for a new start', OLD.id),
            'domain.workers.register_worker makes the row.');
    END IF;
    NEW.last_seen_at := greatest(OLD.last_seen_at, clock_timestamp());
    IF NEW.stopped_at IS NOT NULL AND OLD.stopped_at IS NULL THEN
        NEW.stopped_at := clock_timestamp();
    END IF;
    RETURN NEW;
END $$;

SET default_tablespace = '';

SET default_table_access_method = heap;

-- TABLE alembic_version

CREATE TABLE public.alembic_version (
    version_num character varying(32) NOT NULL
);

-- TABLE chunks

CREATE TABLE public.chunks (
    id bigint NOT NULL,
    version_id bigint NOT NULL,
    chunk_no integer NOT NULL,
    text text NOT NULL,
    char_start integer NOT NULL,
    char_end integer NOT NULL,
    page_no integer,
    token_count integer NOT NULL,
    text_sha256 text NOT NULL,
    CONSTRAINT chunks_not_blank CHECK ((text ~ '\S'::text)),
    CONSTRAINT chunks_number_not_negative CHECK ((chunk_no >= 0)),
    CONSTRAINT chunks_offsets_span_the_text CHECK (((char_start >= 0) AND ((char_end - char_start) = char_length(text)))),
    CONSTRAINT chunks_page_positive CHECK ((page_no >= 1)),
    CONSTRAINT chunks_sha256_is_hex CHECK ((text_sha256 ~ '^[0-9a-f]{64}$'::text)),
    CONSTRAINT chunks_tokens_positive CHECK ((token_count >= 1))
);

-- SEQUENCE chunks_id_seq

ALTER TABLE public.chunks ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.chunks_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

-- TABLE claim_hints

CREATE TABLE public.claim_hints (
    only_row boolean DEFAULT true NOT NULL,
    sent_at timestamp with time zone DEFAULT '-infinity'::timestamp with time zone NOT NULL,
    CONSTRAINT claim_hints_only_row CHECK (only_row)
)
WITH (fillfactor='10');

-- TABLE document_versions

CREATE TABLE public.document_versions (
    id bigint NOT NULL,
    document_id bigint NOT NULL,
    owner_id text NOT NULL,
    version_no integer NOT NULL,
    status text DEFAULT 'UPLOADED'::text NOT NULL,
    stopped_stage text,
    storage_uri text NOT NULL,
    content_sha256 text,
    media_type text,
    size_bytes bigint,
    model_id bigint NOT NULL,
    request_id text,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    indexed_at timestamp with time zone,
    chunk_count integer DEFAULT 0 NOT NULL,
    embedding_count integer DEFAULT 0 NOT NULL,
    active_embedding_count integer DEFAULT 0 NOT NULL,
    CONSTRAINT versions_counts_possible CHECK (((chunk_count >= 0) AND ((embedding_count >= 0) AND (embedding_count <= chunk_count)) AND ((active_embedding_count >= 0) AND (active_embedding_count <= embedding_count)))),
    CONSTRAINT versions_indexed_iff_dated CHECK (((status = 'INDEXED'::text) = (indexed_at IS NOT NULL))),
    CONSTRAINT versions_media_type_length CHECK (((length(media_type) >= 1) AND (length(media_type) <= 255))),
    CONSTRAINT versions_number_positive CHECK ((version_no >= 1)),
    CONSTRAINT versions_request_id_length CHECK (((length(request_id) >= 1) AND (length(request_id) <= 255))),
    CONSTRAINT versions_sha256_is_hex CHECK ((content_sha256 ~ '^[0-9a-f]{64}$'::text)),
    CONSTRAINT versions_size_not_negative CHECK ((size_bytes >= 0)),
    CONSTRAINT versions_status_known CHECK ((status = ANY (ARRAY['UPLOADED'::text, 'PARSING'::text, 'CHUNKING'::text, 'EMBEDDING'::text, 'STORING'::text, 'INDEXED'::text, 'FAILED'::text, 'CANCELLED'::text]))),
    CONSTRAINT versions_stopped_iff_stage_kept CHECK (((status = ANY (ARRAY['FAILED'::text, 'CANCELLED'::text])) = (stopped_stage IS NOT NULL))),
    CONSTRAINT versions_stopped_stage_known CHECK ((stopped_stage = ANY (ARRAY['UPLOADED'::text, 'PARSING'::text, 'CHUNKING'::text, 'EMBEDDING'::text, 'STORING'::text]))),
    CONSTRAINT versions_storage_uri_length CHECK (((length(storage_uri) >= 1) AND (length(storage_uri) <= 4096)))
);

-- SEQUENCE document_versions_id_seq

ALTER TABLE public.document_versions ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.document_versions_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

-- TABLE documents

CREATE TABLE public.documents (
    id bigint NOT NULL,
    owner_id text NOT NULL,
    name text NOT NULL,
    status text DEFAULT 'PENDING'::text NOT NULL,
    current_version_id bigint,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT documents_indexed_iff_current CHECK (((status = 'INDEXED'::text) = (current_version_id IS NOT NULL))),
    CONSTRAINT documents_name_length CHECK (((octet_length(name) >= 1) AND (octet_length(name) <= 1024))),
    CONSTRAINT documents_owner_length CHECK (((length(owner_id) >= 1) AND (length(owner_id) <= 255))),
    CONSTRAINT documents_status_known CHECK ((status = ANY (ARRAY['PENDING'::text, 'INDEXED'::text, 'FAILED'::text, 'CANCELLED'::text, 'DELETED'::text])))
);

-- SEQUENCE documents_id_seq

ALTER TABLE public.documents ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.documents_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

-- TABLE embedding_jobs

CREATE TABLE public.embedding_jobs (
    id bigint NOT NULL,
    version_id bigint NOT NULL,
    document_id bigint NOT NULL,
    owner_id text NOT NULL,
    task text DEFAULT 'parse'::text NOT NULL,
    status text DEFAULT 'PENDING'::text NOT NULL,
    attempt_no integer DEFAULT 0 NOT NULL,
    retry_count integer DEFAULT 0 NOT NULL,
    max_retry_count integer NOT NULL,
    next_retry_at timestamp with time zone,
    due_at timestamp with time zone GENERATED ALWAYS AS (COALESCE(next_retry_at, created_at)) STORED NOT NULL,
    worker_id bigint,
    claim_token uuid,
    lease_expires_at timestamp with time zone,
    last_failure_type text,
    last_failure_reason text,
    last_error_message text,
    last_failed_at timestamp with time zone,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT jobs_attempt_no_not_negative CHECK ((attempt_no >= 0)),
    CONSTRAINT jobs_claimed_iff_processing CHECK ((((status = 'PROCESSING'::text) = (claim_token IS NOT NULL)) AND ((claim_token IS NULL) = (worker_id IS NULL)) AND ((claim_token IS NULL) = (lease_expires_at IS NULL)))),
    CONSTRAINT jobs_max_retry_count_sensible CHECK (((max_retry_count >= 0) AND (max_retry_count <= 1000))),
    CONSTRAINT jobs_next_retry_only_while_pending CHECK (((next_retry_at IS NULL) OR (status = 'PENDING'::text))),
    CONSTRAINT jobs_retry_count_within_budget CHECK (((retry_count >= 0) AND (retry_count <= max_retry_count))),
    CONSTRAINT jobs_status_known CHECK ((status = ANY (ARRAY['PENDING'::text, 'PROCESSING'::text, 'INDEXED'::text, 'FAILED'::text, 'CANCELLED'::text]))),
    CONSTRAINT jobs_task_known CHECK ((task = ANY (ARRAY['parse'::text, 'embed'::text])))
);

-- SEQUENCE embedding_jobs_id_seq

ALTER TABLE public.embedding_jobs ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.embedding_jobs_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

-- TABLE embedding_models

CREATE TABLE public.embedding_models (
    id bigint NOT NULL,
    name text NOT NULL,
    dimensions integer NOT NULL,
    CONSTRAINT models_dimensions_fit_a_vector CHECK (((dimensions >= 1) AND (dimensions <= 16000))),
    CONSTRAINT models_name_is_provider_and_model CHECK (((name ~ '^[^:]+:.+$'::text) AND (length(name) <= 255)))
);

-- SEQUENCE embedding_models_id_seq

ALTER TABLE public.embedding_models ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.embedding_models_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

-- TABLE embeddings

CREATE TABLE public.embeddings (
    chunk_id bigint NOT NULL,
    model_id bigint NOT NULL,
    version_id bigint NOT NULL,
    owner_id text NOT NULL,
    status text DEFAULT 'ACTIVE'::text NOT NULL,
    embedding public.vector NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT embeddings_not_all_zero CHECK ((public.vector_norm(embedding) > (0)::double precision)),
    CONSTRAINT embeddings_status_known CHECK ((status = ANY (ARRAY['ACTIVE'::text, 'STALE'::text])))
);

-- TABLE failure_policies

CREATE TABLE public.failure_policies (
    failure_type text NOT NULL,
    retryable boolean NOT NULL,
    base_delay interval DEFAULT '00:00:10'::interval NOT NULL,
    factor numeric DEFAULT 2 NOT NULL,
    max_delay interval DEFAULT '00:05:00'::interval NOT NULL,
    CONSTRAINT policies_base_delay_not_negative CHECK ((base_delay >= '00:00:00'::interval)),
    CONSTRAINT policies_factor_at_least_one CHECK (((factor >= (1)::numeric) AND (factor <= (100)::numeric))),
    CONSTRAINT policies_max_delay_at_least_base CHECK (((max_delay >= base_delay) AND (max_delay <= '30 days'::interval))),
    CONSTRAINT policies_type_is_a_word CHECK ((failure_type ~ '^[A-Z][A-Z_]{0,62}$'::text))
);

-- TABLE indexing_attempts

CREATE TABLE public.indexing_attempts (
    id bigint NOT NULL,
    job_id bigint NOT NULL,
    attempt_no integer NOT NULL,
    worker_id bigint NOT NULL,
    run_by bigint,
    claim_token uuid NOT NULL,
    status text DEFAULT 'STARTED'::text NOT NULL,
    started_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    stage_started_at timestamp with time zone,
    finished_at timestamp with time zone,
    failed_stage text,
    failure_type text,
    failure_reason text,
    error_message text,
    retryable boolean,
    outcome text,
    retry_count integer,
    max_retry_count integer,
    next_retry_at timestamp with time zone,
    retry_after interval,
    CONSTRAINT attempts_error_message_length CHECK (((octet_length(error_message) <= 8192) AND (error_message ~ '\S'::text))),
    CONSTRAINT attempts_failed_iff_explained CHECK (
CASE
    WHEN (status = 'FAILED'::text) THEN (num_nulls(failed_stage, failure_type, error_message, retryable, outcome, retry_count, max_retry_count) = 0)
    ELSE (num_nonnulls(failed_stage, failure_type, failure_reason, error_message, retryable, outcome, retry_count, max_retry_count, next_retry_at, retry_after) = 0)
END),
    CONSTRAINT attempts_failed_stage_known CHECK ((failed_stage = ANY (ARRAY['PARSING'::text, 'CHUNKING'::text, 'EMBEDDING'::text, 'STORING'::text]))),
    CONSTRAINT attempts_failure_reason_is_a_word CHECK ((failure_reason ~ '^[A-Z][A-Z0-9_]{0,62}$'::text)),
    CONSTRAINT attempts_number_positive CHECK ((attempt_no >= 1)),
    CONSTRAINT attempts_outcome_known CHECK ((outcome = ANY (ARRAY['RETRY'::text, 'FAILED'::text]))),
    CONSTRAINT attempts_retry_iff_dated CHECK (((NOT (outcome IS DISTINCT FROM 'RETRY'::text)) = (next_retry_at IS NOT NULL))),
    CONSTRAINT attempts_started_iff_unfinished CHECK (((status = 'STARTED'::text) = (finished_at IS NULL))),
    CONSTRAINT attempts_status_known CHECK ((status = ANY (ARRAY['STARTED'::text, 'INDEXED'::text, 'FAILED'::text, 'RELEASED'::text, 'CANCELLED'::text])))
);

-- SEQUENCE indexing_attempts_id_seq

ALTER TABLE public.indexing_attempts ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.indexing_attempts_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

-- TABLE indexing_events

CREATE TABLE public.indexing_events (
    id bigint NOT NULL,
    document_id bigint NOT NULL,
    version_id bigint,
    job_id bigint,
    attempt_id bigint,
    type text NOT NULL,
    stage text,
    detail jsonb DEFAULT '{}'::jsonb NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

-- SEQUENCE indexing_events_id_seq

ALTER TABLE public.indexing_events ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.indexing_events_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

-- TABLE notifications

CREATE TABLE public.notifications (
    id bigint NOT NULL,
    owner_id text NOT NULL,
    document_id bigint NOT NULL,
    version_id bigint NOT NULL,
    type text NOT NULL,
    payload jsonb NOT NULL,
    transaction_id xid8 DEFAULT pg_current_xact_id() NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    read_at timestamp with time zone,
    CONSTRAINT notifications_type_known CHECK ((type = ANY (ARRAY['DOCUMENT_FAILED'::text, 'DOCUMENT_INDEXED'::text])))
);

-- SEQUENCE notifications_id_seq

ALTER TABLE public.notifications ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.notifications_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

-- TABLE parsed_texts

CREATE TABLE public.parsed_texts (
    version_id bigint NOT NULL,
    text text NOT NULL,
    page_starts integer[] NOT NULL,
    title text,
    metadata jsonb DEFAULT '{}'::jsonb NOT NULL,
    CONSTRAINT parsed_texts_metadata_is_object CHECK ((jsonb_typeof(metadata) = 'object'::text)),
    CONSTRAINT parsed_texts_not_blank CHECK ((text ~ '\S'::text))
);

-- TABLE processing_failures

CREATE TABLE public.processing_failures (
    id bigint NOT NULL,
    document_id bigint NOT NULL,
    version_id bigint NOT NULL,
    job_id bigint NOT NULL,
    owner_id text NOT NULL,
    stage text NOT NULL,
    failure_type text NOT NULL,
    retry_count integer NOT NULL,
    errors jsonb NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    final_failed_at timestamp with time zone NOT NULL,
    CONSTRAINT failures_errors_are_a_list CHECK ((jsonb_typeof(errors) = 'array'::text))
);

-- SEQUENCE processing_failures_id_seq

ALTER TABLE public.processing_failures ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.processing_failures_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

-- TABLE workers

CREATE TABLE public.workers (
    id bigint NOT NULL,
    name text NOT NULL,
    queues text[] NOT NULL,
    concurrency integer NOT NULL,
    started_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    last_seen_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    stopped_at timestamp with time zone,
    CONSTRAINT workers_concurrency_positive CHECK ((concurrency >= 1)),
    CONSTRAINT workers_name_length CHECK (((length(name) >= 1) AND (length(name) <= 255)))
);

-- SEQUENCE workers_id_seq

ALTER TABLE public.workers ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.workers_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

-- CONSTRAINT alembic_version alembic_version_pkc

ALTER TABLE ONLY public.alembic_version
    ADD CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num);

-- CONSTRAINT indexing_attempts attempts_claim_token_used_once

ALTER TABLE ONLY public.indexing_attempts
    ADD CONSTRAINT attempts_claim_token_used_once UNIQUE (claim_token);

-- CONSTRAINT indexing_attempts attempts_number_once_per_job

ALTER TABLE ONLY public.indexing_attempts
    ADD CONSTRAINT attempts_number_once_per_job UNIQUE (job_id, attempt_no);

-- CONSTRAINT chunks chunks_embedding_key

ALTER TABLE ONLY public.chunks
    ADD CONSTRAINT chunks_embedding_key UNIQUE (id, version_id);

-- CONSTRAINT chunks chunks_number_once_per_version

ALTER TABLE ONLY public.chunks
    ADD CONSTRAINT chunks_number_once_per_version UNIQUE (version_id, chunk_no);

-- CONSTRAINT chunks chunks_pkey

ALTER TABLE ONLY public.chunks
    ADD CONSTRAINT chunks_pkey PRIMARY KEY (id);

-- CONSTRAINT claim_hints claim_hints_pkey

ALTER TABLE ONLY public.claim_hints
    ADD CONSTRAINT claim_hints_pkey PRIMARY KEY (only_row);

-- CONSTRAINT document_versions document_versions_pkey

ALTER TABLE ONLY public.document_versions
    ADD CONSTRAINT document_versions_pkey PRIMARY KEY (id);

-- CONSTRAINT documents documents_owner_key

ALTER TABLE ONLY public.documents
    ADD CONSTRAINT documents_owner_key UNIQUE (id, owner_id);

-- CONSTRAINT documents documents_pkey

ALTER TABLE ONLY public.documents
    ADD CONSTRAINT documents_pkey PRIMARY KEY (id);

-- CONSTRAINT embedding_jobs embedding_jobs_pkey

ALTER TABLE ONLY public.embedding_jobs
    ADD CONSTRAINT embedding_jobs_pkey PRIMARY KEY (id);

-- CONSTRAINT embedding_models embedding_models_pkey

ALTER TABLE ONLY public.embedding_models
    ADD CONSTRAINT embedding_models_pkey PRIMARY KEY (id);

-- CONSTRAINT embeddings embeddings_pkey

ALTER TABLE ONLY public.embeddings
    ADD CONSTRAINT embeddings_pkey PRIMARY KEY (chunk_id, model_id);

-- CONSTRAINT failure_policies failure_policies_pkey

ALTER TABLE ONLY public.failure_policies
    ADD CONSTRAINT failure_policies_pkey PRIMARY KEY (failure_type);

-- CONSTRAINT processing_failures failures_one_per_job

ALTER TABLE ONLY public.processing_failures
    ADD CONSTRAINT failures_one_per_job UNIQUE (job_id);

-- CONSTRAINT indexing_attempts indexing_attempts_pkey

ALTER TABLE ONLY public.indexing_attempts
    ADD CONSTRAINT indexing_attempts_pkey PRIMARY KEY (id);

-- CONSTRAINT indexing_events indexing_events_pkey

ALTER TABLE ONLY public.indexing_events
    ADD CONSTRAINT indexing_events_pkey PRIMARY KEY (id);

-- CONSTRAINT embedding_models models_name_and_dimensions_once

ALTER TABLE ONLY public.embedding_models
    ADD CONSTRAINT models_name_and_dimensions_once UNIQUE (name, dimensions);

-- CONSTRAINT notifications notifications_pkey

ALTER TABLE ONLY public.notifications
    ADD CONSTRAINT notifications_pkey PRIMARY KEY (id);

-- CONSTRAINT parsed_texts parsed_texts_pkey

ALTER TABLE ONLY public.parsed_texts
    ADD CONSTRAINT parsed_texts_pkey PRIMARY KEY (version_id);

-- CONSTRAINT processing_failures processing_failures_pkey

ALTER TABLE ONLY public.processing_failures
    ADD CONSTRAINT processing_failures_pkey PRIMARY KEY (id);

-- CONSTRAINT document_versions versions_document_key

ALTER TABLE ONLY public.document_versions
    ADD CONSTRAINT versions_document_key UNIQUE (id, document_id);

-- CONSTRAINT document_versions versions_embedding_key

ALTER TABLE ONLY public.document_versions
    ADD CONSTRAINT versions_embedding_key UNIQUE (id, owner_id, model_id);

-- CONSTRAINT document_versions versions_job_key

ALTER TABLE ONLY public.document_versions
    ADD CONSTRAINT versions_job_key UNIQUE (id, document_id, owner_id);

-- CONSTRAINT document_versions versions_number_once_per_document

ALTER TABLE ONLY public.document_versions
    ADD CONSTRAINT versions_number_once_per_document UNIQUE (document_id, version_no);

-- CONSTRAINT document_versions versions_request_once_per_owner

ALTER TABLE ONLY public.document_versions
    ADD CONSTRAINT versions_request_once_per_owner UNIQUE (owner_id, request_id);

-- CONSTRAINT workers workers_pkey

ALTER TABLE ONLY public.workers
    ADD CONSTRAINT workers_pkey PRIMARY KEY (id);

-- INDEX attempts_not_begun

CREATE INDEX attempts_not_begun ON public.indexing_attempts USING btree (job_id) WHERE ((status = 'STARTED'::text) AND (stage_started_at IS NULL));

-- INDEX attempts_one_started_per_job

CREATE UNIQUE INDEX attempts_one_started_per_job ON public.indexing_attempts USING btree (job_id) WHERE (status = 'STARTED'::text);

-- INDEX documents_name_once_per_owner

CREATE UNIQUE INDEX documents_name_once_per_owner ON public.documents USING btree (owner_id, name) WHERE (status <> 'DELETED'::text);

-- INDEX documents_of_owner

CREATE INDEX documents_of_owner ON public.documents USING btree (owner_id, id);

-- INDEX embeddings_active_of_owner

CREATE INDEX embeddings_active_of_owner ON public.embeddings USING btree (owner_id, model_id) WHERE (status = 'ACTIVE'::text);

-- INDEX embeddings_of_version

CREATE INDEX embeddings_of_version ON public.embeddings USING btree (version_id);

-- INDEX events_of_document

CREATE INDEX events_of_document ON public.indexing_events USING btree (document_id, id);

-- INDEX failures_of_document

CREATE INDEX failures_of_document ON public.processing_failures USING btree (document_id, id);

-- INDEX failures_of_owner

CREATE INDEX failures_of_owner ON public.processing_failures USING btree (owner_id, id);

-- INDEX jobs_due

CREATE INDEX jobs_due ON public.embedding_jobs USING btree (task, due_at, id) WHERE (status = 'PENDING'::text);

-- INDEX jobs_leased

CREATE INDEX jobs_leased ON public.embedding_jobs USING btree (lease_expires_at) WHERE (status = 'PROCESSING'::text);

-- INDEX jobs_live_of_document

CREATE INDEX jobs_live_of_document ON public.embedding_jobs USING btree (document_id) WHERE (status = ANY (ARRAY['PENDING'::text, 'PROCESSING'::text]));

-- INDEX jobs_live_of_owner

CREATE INDEX jobs_live_of_owner ON public.embedding_jobs USING btree (owner_id, document_id) WHERE (status = ANY (ARRAY['PENDING'::text, 'PROCESSING'::text]));

-- INDEX jobs_of_version

CREATE INDEX jobs_of_version ON public.embedding_jobs USING btree (version_id, id);

-- INDEX jobs_one_live_per_version

CREATE UNIQUE INDEX jobs_one_live_per_version ON public.embedding_jobs USING btree (version_id) WHERE (status = ANY (ARRAY['PENDING'::text, 'PROCESSING'::text]));

-- INDEX notifications_of_owner

CREATE INDEX notifications_of_owner ON public.notifications USING btree (owner_id, transaction_id, id);

-- INDEX workers_running

CREATE INDEX workers_running ON public.workers USING btree (last_seen_at) WHERE (stopped_at IS NULL);

-- TRIGGER indexing_attempts attempts_check

CREATE CONSTRAINT TRIGGER attempts_check AFTER UPDATE OF status ON public.indexing_attempts DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.check_at_commit();

-- TRIGGER indexing_attempts attempts_guard

CREATE TRIGGER attempts_guard BEFORE INSERT OR UPDATE ON public.indexing_attempts FOR EACH ROW EXECUTE FUNCTION public.attempts_guard();

-- TRIGGER indexing_attempts attempts_history

CREATE TRIGGER attempts_history AFTER UPDATE OF status ON public.indexing_attempts FOR EACH ROW WHEN ((old.status <> new.status)) EXECUTE FUNCTION public.attempts_history();

-- TRIGGER indexing_attempts attempts_history_of_birth

CREATE TRIGGER attempts_history_of_birth AFTER INSERT ON public.indexing_attempts FOR EACH ROW EXECUTE FUNCTION public.attempts_history();

-- TRIGGER chunks chunks_counted_in

CREATE TRIGGER chunks_counted_in AFTER INSERT ON public.chunks REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION public.chunks_counted();

-- TRIGGER chunks chunks_counted_out

CREATE TRIGGER chunks_counted_out AFTER DELETE ON public.chunks REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION public.chunks_counted();

-- TRIGGER chunks chunks_never_change

CREATE TRIGGER chunks_never_change BEFORE UPDATE ON public.chunks FOR EACH STATEMENT EXECUTE FUNCTION public.refuse_any_change();

-- TRIGGER claim_hints claim_hints_date_sending

CREATE TRIGGER claim_hints_date_sending BEFORE UPDATE OF sent_at ON public.claim_hints FOR EACH ROW EXECUTE FUNCTION public.claim_hints_date_sending();

-- TRIGGER documents documents_check

CREATE CONSTRAINT TRIGGER documents_check AFTER INSERT OR UPDATE OF status, current_version_id ON public.documents DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.check_at_commit();

-- TRIGGER documents documents_guard

CREATE TRIGGER documents_guard BEFORE INSERT OR UPDATE ON public.documents FOR EACH ROW EXECUTE FUNCTION public.documents_guard();

-- TRIGGER documents documents_history

CREATE TRIGGER documents_history AFTER INSERT OR UPDATE OF status, current_version_id ON public.documents FOR EACH ROW EXECUTE FUNCTION public.documents_history();

-- TRIGGER embeddings embeddings_deleted

CREATE TRIGGER embeddings_deleted AFTER DELETE ON public.embeddings REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION public.embeddings_deleted();

-- TRIGGER embeddings embeddings_inserted

CREATE TRIGGER embeddings_inserted AFTER INSERT ON public.embeddings REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION public.embeddings_inserted();

-- TRIGGER embeddings embeddings_never_change

CREATE TRIGGER embeddings_never_change BEFORE UPDATE OF chunk_id, model_id, version_id, owner_id, embedding, created_at ON public.embeddings FOR EACH STATEMENT EXECUTE FUNCTION public.refuse_any_change();

-- TRIGGER embeddings embeddings_switched

CREATE TRIGGER embeddings_switched AFTER UPDATE ON public.embeddings REFERENCING OLD TABLE AS before NEW TABLE AS after FOR EACH STATEMENT EXECUTE FUNCTION public.embeddings_switched();

-- TRIGGER indexing_events events_never_change

CREATE TRIGGER events_never_change BEFORE UPDATE ON public.indexing_events FOR EACH STATEMENT EXECUTE FUNCTION public.refuse_any_change();

-- TRIGGER processing_failures failures_never_change

CREATE TRIGGER failures_never_change BEFORE UPDATE ON public.processing_failures FOR EACH STATEMENT EXECUTE FUNCTION public.refuse_any_change();

-- TRIGGER embedding_jobs jobs_check

CREATE CONSTRAINT TRIGGER jobs_check AFTER INSERT OR UPDATE OF status, worker_id, claim_token ON public.embedding_jobs DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.check_at_commit();

-- TRIGGER embedding_jobs jobs_final_failure

CREATE TRIGGER jobs_final_failure AFTER UPDATE OF status ON public.embedding_jobs FOR EACH ROW WHEN (((new.status = 'FAILED'::text) AND (old.status <> 'FAILED'::text))) EXECUTE FUNCTION public.jobs_final_failure();

-- TRIGGER embedding_jobs jobs_guard

CREATE TRIGGER jobs_guard BEFORE INSERT OR UPDATE ON public.embedding_jobs FOR EACH ROW EXECUTE FUNCTION public.jobs_guard();

-- TRIGGER notifications notifications_date_reading

CREATE TRIGGER notifications_date_reading BEFORE UPDATE OF read_at ON public.notifications FOR EACH ROW EXECUTE FUNCTION public.notifications_date_reading();

-- TRIGGER notifications notifications_only_read

CREATE TRIGGER notifications_only_read BEFORE UPDATE OF id, owner_id, document_id, version_id, type, payload, transaction_id, created_at ON public.notifications FOR EACH STATEMENT EXECUTE FUNCTION public.refuse_any_change();

-- TRIGGER parsed_texts parsed_texts_never_change

CREATE TRIGGER parsed_texts_never_change BEFORE UPDATE ON public.parsed_texts FOR EACH STATEMENT EXECUTE FUNCTION public.refuse_any_change();

-- TRIGGER parsed_texts parsed_texts_only_while_parsing

CREATE TRIGGER parsed_texts_only_while_parsing BEFORE INSERT ON public.parsed_texts FOR EACH ROW EXECUTE FUNCTION public.parsed_texts_only_while_parsing();

-- TRIGGER document_versions versions_check

CREATE CONSTRAINT TRIGGER versions_check AFTER INSERT OR UPDATE OF status, chunk_count, embedding_count, active_embedding_count ON public.document_versions DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.check_at_commit();

-- TRIGGER document_versions versions_guard

CREATE TRIGGER versions_guard BEFORE INSERT OR UPDATE ON public.document_versions FOR EACH ROW EXECUTE FUNCTION public.versions_guard();

-- TRIGGER document_versions versions_history

CREATE TRIGGER versions_history AFTER UPDATE OF status ON public.document_versions FOR EACH ROW WHEN ((old.status <> new.status)) EXECUTE FUNCTION public.versions_history();

-- TRIGGER document_versions versions_history_of_birth

CREATE TRIGGER versions_history_of_birth AFTER INSERT ON public.document_versions FOR EACH ROW EXECUTE FUNCTION public.versions_history();

-- TRIGGER workers workers_guard

CREATE TRIGGER workers_guard BEFORE INSERT OR UPDATE ON public.workers FOR EACH ROW EXECUTE FUNCTION public.workers_guard();

-- FK CONSTRAINT indexing_attempts attempts_failure_type_known

ALTER TABLE ONLY public.indexing_attempts
    ADD CONSTRAINT attempts_failure_type_known FOREIGN KEY (failure_type) REFERENCES public.failure_policies(failure_type);

-- FK CONSTRAINT indexing_attempts attempts_job_known

ALTER TABLE ONLY public.indexing_attempts
    ADD CONSTRAINT attempts_job_known FOREIGN KEY (job_id) REFERENCES public.embedding_jobs(id);

-- FK CONSTRAINT indexing_attempts attempts_runner_known

ALTER TABLE ONLY public.indexing_attempts
    ADD CONSTRAINT attempts_runner_known FOREIGN KEY (run_by) REFERENCES public.workers(id);

-- FK CONSTRAINT indexing_attempts attempts_worker_known

ALTER TABLE ONLY public.indexing_attempts
    ADD CONSTRAINT attempts_worker_known FOREIGN KEY (worker_id) REFERENCES public.workers(id);

-- FK CONSTRAINT chunks chunks_version_known

ALTER TABLE ONLY public.chunks
    ADD CONSTRAINT chunks_version_known FOREIGN KEY (version_id) REFERENCES public.document_versions(id);

-- FK CONSTRAINT documents documents_current_is_own_version

ALTER TABLE ONLY public.documents
    ADD CONSTRAINT documents_current_is_own_version FOREIGN KEY (current_version_id, id) REFERENCES public.document_versions(id, document_id);

-- FK CONSTRAINT embeddings embeddings_chunk_is_versions_chunk

ALTER TABLE ONLY public.embeddings
    ADD CONSTRAINT embeddings_chunk_is_versions_chunk FOREIGN KEY (chunk_id, version_id) REFERENCES public.chunks(id, version_id);

-- FK CONSTRAINT embeddings embeddings_ids_agree_with_version

ALTER TABLE ONLY public.embeddings
    ADD CONSTRAINT embeddings_ids_agree_with_version FOREIGN KEY (version_id, owner_id, model_id) REFERENCES public.document_versions(id, owner_id, model_id);

-- FK CONSTRAINT processing_failures failures_job_known

ALTER TABLE ONLY public.processing_failures
    ADD CONSTRAINT failures_job_known FOREIGN KEY (job_id) REFERENCES public.embedding_jobs(id);

-- FK CONSTRAINT processing_failures failures_type_known

ALTER TABLE ONLY public.processing_failures
    ADD CONSTRAINT failures_type_known FOREIGN KEY (failure_type) REFERENCES public.failure_policies(failure_type);

-- FK CONSTRAINT embedding_jobs jobs_ids_agree_with_version

ALTER TABLE ONLY public.embedding_jobs
    ADD CONSTRAINT jobs_ids_agree_with_version FOREIGN KEY (version_id, document_id, owner_id) REFERENCES public.document_versions(id, document_id, owner_id);

-- FK CONSTRAINT embedding_jobs jobs_worker_known

ALTER TABLE ONLY public.embedding_jobs
    ADD CONSTRAINT jobs_worker_known FOREIGN KEY (worker_id) REFERENCES public.workers(id);

-- FK CONSTRAINT notifications notifications_document_known

ALTER TABLE ONLY public.notifications
    ADD CONSTRAINT notifications_document_known FOREIGN KEY (document_id) REFERENCES public.documents(id);

-- FK CONSTRAINT notifications notifications_version_known

ALTER TABLE ONLY public.notifications
    ADD CONSTRAINT notifications_version_known FOREIGN KEY (version_id) REFERENCES public.document_versions(id);

-- FK CONSTRAINT parsed_texts parsed_texts_version_known

ALTER TABLE ONLY public.parsed_texts
    ADD CONSTRAINT parsed_texts_version_known FOREIGN KEY (version_id) REFERENCES public.document_versions(id);

-- FK CONSTRAINT document_versions versions_model_known

ALTER TABLE ONLY public.document_versions
    ADD CONSTRAINT versions_model_known FOREIGN KEY (model_id) REFERENCES public.embedding_models(id);

-- FK CONSTRAINT document_versions versions_owner_is_documents_owner

ALTER TABLE ONLY public.document_versions
    ADD CONSTRAINT versions_owner_is_documents_owner FOREIGN KEY (document_id, owner_id) REFERENCES public.documents(id, owner_id);

-- ACL SCHEMA public

GRANT USAGE ON SCHEMA public TO holdfast_app;

-- ACL FUNCTION attempts_history()

REVOKE ALL ON FUNCTION public.attempts_history() FROM PUBLIC;

-- ACL FUNCTION chunks_counted()

REVOKE ALL ON FUNCTION public.chunks_counted() FROM PUBLIC;

-- ACL FUNCTION delete_document_content(document_id_ bigint)

REVOKE ALL ON FUNCTION public.delete_document_content(document_id_ bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION public.delete_document_content(document_id_ bigint) TO holdfast_app;

-- ACL FUNCTION documents_history()

REVOKE ALL ON FUNCTION public.documents_history() FROM PUBLIC;

-- ACL FUNCTION embeddings_deleted()

REVOKE ALL ON FUNCTION public.embeddings_deleted() FROM PUBLIC;

-- ACL FUNCTION embeddings_inserted()

REVOKE ALL ON FUNCTION public.embeddings_inserted() FROM PUBLIC;

-- ACL FUNCTION embeddings_switched()

REVOKE ALL ON FUNCTION public.embeddings_switched() FROM PUBLIC;

-- ACL FUNCTION grant_application_role(role_ name)

REVOKE ALL ON FUNCTION public.grant_application_role(role_ name) FROM PUBLIC;

-- ACL FUNCTION jobs_final_failure()

REVOKE ALL ON FUNCTION public.jobs_final_failure() FROM PUBLIC;

-- ACL FUNCTION register_model(name_ text, dimensions_ integer)

REVOKE ALL ON FUNCTION public.register_model(name_ text, dimensions_ integer) FROM PUBLIC;
GRANT ALL ON FUNCTION public.register_model(name_ text, dimensions_ integer) TO holdfast_app;

-- ACL FUNCTION versions_history()

REVOKE ALL ON FUNCTION public.versions_history() FROM PUBLIC;

-- ACL TABLE alembic_version

GRANT SELECT ON TABLE public.alembic_version TO holdfast_app;

-- ACL TABLE chunks

GRANT SELECT ON TABLE public.chunks TO holdfast_app;

-- ACL COLUMN chunks.version_id

GRANT INSERT(version_id) ON TABLE public.chunks TO holdfast_app;

-- ACL COLUMN chunks.chunk_no

GRANT INSERT(chunk_no) ON TABLE public.chunks TO holdfast_app;

-- ACL COLUMN chunks.text

GRANT INSERT(text) ON TABLE public.chunks TO holdfast_app;

-- ACL COLUMN chunks.char_start

GRANT INSERT(char_start) ON TABLE public.chunks TO holdfast_app;

-- ACL COLUMN chunks.char_end

GRANT INSERT(char_end) ON TABLE public.chunks TO holdfast_app;

-- ACL COLUMN chunks.page_no

GRANT INSERT(page_no) ON TABLE public.chunks TO holdfast_app;

-- ACL COLUMN chunks.token_count

GRANT INSERT(token_count) ON TABLE public.chunks TO holdfast_app;

-- ACL COLUMN chunks.text_sha256

GRANT INSERT(text_sha256) ON TABLE public.chunks TO holdfast_app;

-- ACL TABLE claim_hints

GRANT SELECT,UPDATE ON TABLE public.claim_hints TO holdfast_app;

-- ACL TABLE document_versions

GRANT SELECT ON TABLE public.document_versions TO holdfast_app;

-- ACL COLUMN document_versions.document_id

GRANT INSERT(document_id) ON TABLE public.document_versions TO holdfast_app;

-- ACL COLUMN document_versions.owner_id

GRANT INSERT(owner_id) ON TABLE public.document_versions TO holdfast_app;

-- ACL COLUMN document_versions.version_no

GRANT INSERT(version_no) ON TABLE public.document_versions TO holdfast_app;

-- ACL COLUMN document_versions.status

GRANT INSERT(status),UPDATE(status) ON TABLE public.document_versions TO holdfast_app;

-- ACL COLUMN document_versions.stopped_stage

GRANT INSERT(stopped_stage),UPDATE(stopped_stage) ON TABLE public.document_versions TO holdfast_app;

-- ACL COLUMN document_versions.storage_uri

GRANT INSERT(storage_uri) ON TABLE public.document_versions TO holdfast_app;

-- ACL COLUMN document_versions.content_sha256

GRANT INSERT(content_sha256),UPDATE(content_sha256) ON TABLE public.document_versions TO holdfast_app;

-- ACL COLUMN document_versions.media_type

GRANT INSERT(media_type),UPDATE(media_type) ON TABLE public.document_versions TO holdfast_app;

-- ACL COLUMN document_versions.size_bytes

GRANT INSERT(size_bytes),UPDATE(size_bytes) ON TABLE public.document_versions TO holdfast_app;

-- ACL COLUMN document_versions.model_id

GRANT INSERT(model_id) ON TABLE public.document_versions TO holdfast_app;

-- ACL COLUMN document_versions.request_id

GRANT INSERT(request_id) ON TABLE public.document_versions TO holdfast_app;

-- ACL COLUMN document_versions.created_at

GRANT INSERT(created_at) ON TABLE public.document_versions TO holdfast_app;

-- ACL COLUMN document_versions.indexed_at

GRANT INSERT(indexed_at) ON TABLE public.document_versions TO holdfast_app;

-- ACL TABLE documents

GRANT SELECT,UPDATE ON TABLE public.documents TO holdfast_app;

-- ACL COLUMN documents.owner_id

GRANT INSERT(owner_id) ON TABLE public.documents TO holdfast_app;

-- ACL COLUMN documents.name

GRANT INSERT(name) ON TABLE public.documents TO holdfast_app;

-- ACL COLUMN documents.status

GRANT INSERT(status) ON TABLE public.documents TO holdfast_app;

-- ACL COLUMN documents.current_version_id

GRANT INSERT(current_version_id) ON TABLE public.documents TO holdfast_app;

-- ACL COLUMN documents.created_at

GRANT INSERT(created_at) ON TABLE public.documents TO holdfast_app;

-- ACL COLUMN documents.updated_at

GRANT INSERT(updated_at) ON TABLE public.documents TO holdfast_app;

-- ACL TABLE embedding_jobs

GRANT SELECT,UPDATE ON TABLE public.embedding_jobs TO holdfast_app;

-- ACL COLUMN embedding_jobs.version_id

GRANT INSERT(version_id) ON TABLE public.embedding_jobs TO holdfast_app;

-- ACL COLUMN embedding_jobs.document_id

GRANT INSERT(document_id) ON TABLE public.embedding_jobs TO holdfast_app;

-- ACL COLUMN embedding_jobs.owner_id

GRANT INSERT(owner_id) ON TABLE public.embedding_jobs TO holdfast_app;

-- ACL COLUMN embedding_jobs.task

GRANT INSERT(task) ON TABLE public.embedding_jobs TO holdfast_app;

-- ACL COLUMN embedding_jobs.status

GRANT INSERT(status) ON TABLE public.embedding_jobs TO holdfast_app;

-- ACL COLUMN embedding_jobs.attempt_no

GRANT INSERT(attempt_no) ON TABLE public.embedding_jobs TO holdfast_app;

-- ACL COLUMN embedding_jobs.retry_count

GRANT INSERT(retry_count) ON TABLE public.embedding_jobs TO holdfast_app;

-- ACL COLUMN embedding_jobs.max_retry_count

GRANT INSERT(max_retry_count) ON TABLE public.embedding_jobs TO holdfast_app;

-- ACL COLUMN embedding_jobs.next_retry_at

GRANT INSERT(next_retry_at) ON TABLE public.embedding_jobs TO holdfast_app;

-- ACL COLUMN embedding_jobs.worker_id

GRANT INSERT(worker_id) ON TABLE public.embedding_jobs TO holdfast_app;

-- ACL COLUMN embedding_jobs.claim_token

GRANT INSERT(claim_token) ON TABLE public.embedding_jobs TO holdfast_app;

-- ACL COLUMN embedding_jobs.lease_expires_at

GRANT INSERT(lease_expires_at) ON TABLE public.embedding_jobs TO holdfast_app;

-- ACL COLUMN embedding_jobs.last_failure_type

GRANT INSERT(last_failure_type) ON TABLE public.embedding_jobs TO holdfast_app;

-- ACL COLUMN embedding_jobs.last_failure_reason

GRANT INSERT(last_failure_reason) ON TABLE public.embedding_jobs TO holdfast_app;

-- ACL COLUMN embedding_jobs.last_error_message

GRANT INSERT(last_error_message) ON TABLE public.embedding_jobs TO holdfast_app;

-- ACL COLUMN embedding_jobs.last_failed_at

GRANT INSERT(last_failed_at) ON TABLE public.embedding_jobs TO holdfast_app;

-- ACL COLUMN embedding_jobs.created_at

GRANT INSERT(created_at) ON TABLE public.embedding_jobs TO holdfast_app;

-- ACL COLUMN embedding_jobs.updated_at

GRANT INSERT(updated_at) ON TABLE public.embedding_jobs TO holdfast_app;

-- ACL TABLE embedding_models

GRANT SELECT ON TABLE public.embedding_models TO holdfast_app;

-- ACL TABLE embeddings

GRANT SELECT,UPDATE ON TABLE public.embeddings TO holdfast_app;

-- ACL COLUMN embeddings.chunk_id

GRANT INSERT(chunk_id) ON TABLE public.embeddings TO holdfast_app;

-- ACL COLUMN embeddings.model_id

GRANT INSERT(model_id) ON TABLE public.embeddings TO holdfast_app;

-- ACL COLUMN embeddings.version_id

GRANT INSERT(version_id) ON TABLE public.embeddings TO holdfast_app;

-- ACL COLUMN embeddings.owner_id

GRANT INSERT(owner_id) ON TABLE public.embeddings TO holdfast_app;

-- ACL COLUMN embeddings.status

GRANT INSERT(status) ON TABLE public.embeddings TO holdfast_app;

-- ACL COLUMN embeddings.embedding

GRANT INSERT(embedding) ON TABLE public.embeddings TO holdfast_app;

-- ACL TABLE failure_policies

GRANT SELECT ON TABLE public.failure_policies TO holdfast_app;

-- ACL COLUMN failure_policies.retryable

GRANT UPDATE(retryable) ON TABLE public.failure_policies TO holdfast_app;

-- ACL COLUMN failure_policies.base_delay

GRANT UPDATE(base_delay) ON TABLE public.failure_policies TO holdfast_app;

-- ACL COLUMN failure_policies.factor

GRANT UPDATE(factor) ON TABLE public.failure_policies TO holdfast_app;

-- ACL COLUMN failure_policies.max_delay

GRANT UPDATE(max_delay) ON TABLE public.failure_policies TO holdfast_app;

-- ACL TABLE indexing_attempts

GRANT SELECT,UPDATE ON TABLE public.indexing_attempts TO holdfast_app;

-- ACL COLUMN indexing_attempts.job_id

GRANT INSERT(job_id) ON TABLE public.indexing_attempts TO holdfast_app;

-- ACL COLUMN indexing_attempts.attempt_no

GRANT INSERT(attempt_no) ON TABLE public.indexing_attempts TO holdfast_app;

-- ACL COLUMN indexing_attempts.worker_id

GRANT INSERT(worker_id) ON TABLE public.indexing_attempts TO holdfast_app;

-- ACL COLUMN indexing_attempts.run_by

GRANT INSERT(run_by) ON TABLE public.indexing_attempts TO holdfast_app;

-- ACL COLUMN indexing_attempts.claim_token

GRANT INSERT(claim_token) ON TABLE public.indexing_attempts TO holdfast_app;

-- ACL COLUMN indexing_attempts.status

GRANT INSERT(status) ON TABLE public.indexing_attempts TO holdfast_app;

-- ACL COLUMN indexing_attempts.started_at

GRANT INSERT(started_at) ON TABLE public.indexing_attempts TO holdfast_app;

-- ACL COLUMN indexing_attempts.stage_started_at

GRANT INSERT(stage_started_at) ON TABLE public.indexing_attempts TO holdfast_app;

-- ACL COLUMN indexing_attempts.finished_at

GRANT INSERT(finished_at) ON TABLE public.indexing_attempts TO holdfast_app;

-- ACL COLUMN indexing_attempts.failed_stage

GRANT INSERT(failed_stage) ON TABLE public.indexing_attempts TO holdfast_app;

-- ACL COLUMN indexing_attempts.failure_type

GRANT INSERT(failure_type) ON TABLE public.indexing_attempts TO holdfast_app;

-- ACL COLUMN indexing_attempts.failure_reason

GRANT INSERT(failure_reason) ON TABLE public.indexing_attempts TO holdfast_app;

-- ACL COLUMN indexing_attempts.error_message

GRANT INSERT(error_message) ON TABLE public.indexing_attempts TO holdfast_app;

-- ACL COLUMN indexing_attempts.retryable

GRANT INSERT(retryable) ON TABLE public.indexing_attempts TO holdfast_app;

-- ACL COLUMN indexing_attempts.outcome

GRANT INSERT(outcome) ON TABLE public.indexing_attempts TO holdfast_app;

-- ACL COLUMN indexing_attempts.retry_count

GRANT INSERT(retry_count) ON TABLE public.indexing_attempts TO holdfast_app;

-- ACL COLUMN indexing_attempts.max_retry_count

GRANT INSERT(max_retry_count) ON TABLE public.indexing_attempts TO holdfast_app;

-- ACL COLUMN indexing_attempts.next_retry_at

GRANT INSERT(next_retry_at) ON TABLE public.indexing_attempts TO holdfast_app;

-- ACL COLUMN indexing_attempts.retry_after

GRANT INSERT(retry_after) ON TABLE public.indexing_attempts TO holdfast_app;

-- ACL TABLE indexing_events

GRANT SELECT ON TABLE public.indexing_events TO holdfast_app;

-- ACL TABLE notifications

GRANT SELECT ON TABLE public.notifications TO holdfast_app;

-- ACL COLUMN notifications.read_at

GRANT UPDATE(read_at) ON TABLE public.notifications TO holdfast_app;

-- ACL TABLE parsed_texts

GRANT SELECT ON TABLE public.parsed_texts TO holdfast_app;

-- ACL COLUMN parsed_texts.version_id

GRANT INSERT(version_id) ON TABLE public.parsed_texts TO holdfast_app;

-- ACL COLUMN parsed_texts.text

GRANT INSERT(text) ON TABLE public.parsed_texts TO holdfast_app;

-- ACL COLUMN parsed_texts.page_starts

GRANT INSERT(page_starts) ON TABLE public.parsed_texts TO holdfast_app;

-- ACL COLUMN parsed_texts.title

GRANT INSERT(title) ON TABLE public.parsed_texts TO holdfast_app;

-- ACL COLUMN parsed_texts.metadata

GRANT INSERT(metadata) ON TABLE public.parsed_texts TO holdfast_app;

-- ACL TABLE processing_failures

GRANT SELECT ON TABLE public.processing_failures TO holdfast_app;

-- ACL TABLE workers

GRANT SELECT,UPDATE ON TABLE public.workers TO holdfast_app;

-- ACL COLUMN workers.name

GRANT INSERT(name) ON TABLE public.workers TO holdfast_app;

-- ACL COLUMN workers.queues

GRANT INSERT(queues) ON TABLE public.workers TO holdfast_app;

-- ACL COLUMN workers.concurrency

GRANT INSERT(concurrency) ON TABLE public.workers TO holdfast_app;

-- ACL COLUMN workers.started_at

GRANT INSERT(started_at) ON TABLE public.workers TO holdfast_app;

-- ACL COLUMN workers.last_seen_at

GRANT INSERT(last_seen_at) ON TABLE public.workers TO holdfast_app;

-- ACL COLUMN workers.stopped_at

GRANT INSERT(stopped_at) ON TABLE public.workers TO holdfast_app;

--
-- PostgreSQL database dump complete
--
