-- What must agree between rows when a transaction commits. A check that only reads could be passed by two
-- transactions at once, so each first locks the row it reasons about (FOR NO KEY UPDATE, always job, version,
-- document); the domain functions hold those locks already. READ COMMITTED is required: each query of a check
-- must see what was committed while it waited for its lock.

-- Content tables: one statement-level trigger counts what a statement wrote. Updating the version's counters
-- locks it and queues its single check, whether one row was written or 50,000.

CREATE FUNCTION parsed_texts_only_while_parsing() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
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
CREATE TRIGGER parsed_texts_only_while_parsing BEFORE INSERT ON parsed_texts
    FOR EACH ROW EXECUTE FUNCTION parsed_texts_only_while_parsing();

CREATE FUNCTION chunks_counted() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
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
CREATE TRIGGER chunks_counted_in AFTER INSERT ON chunks REFERENCING NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION chunks_counted();
CREATE TRIGGER chunks_counted_out AFTER DELETE ON chunks REFERENCING OLD TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION chunks_counted();

CREATE FUNCTION embeddings_inserted() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
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
CREATE TRIGGER embeddings_inserted AFTER INSERT ON embeddings REFERENCING NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION embeddings_inserted();

-- Only the status of an embedding can change (0002), so the number of ACTIVE rows per version, before and
-- after, says all that a statement did.
CREATE FUNCTION embeddings_switched() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
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
CREATE TRIGGER embeddings_switched AFTER UPDATE ON embeddings
    REFERENCING OLD TABLE AS before NEW TABLE AS after
    FOR EACH STATEMENT EXECUTE FUNCTION embeddings_switched();

CREATE FUNCTION embeddings_deleted() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
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
CREATE TRIGGER embeddings_deleted AFTER DELETE ON embeddings REFERENCING OLD TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION embeddings_deleted();

-- As in 0003: on a temporary table these would move the counters without any content.
REVOKE EXECUTE ON FUNCTION chunks_counted(), embeddings_inserted(), embeddings_switched(), embeddings_deleted() FROM PUBLIC;

-- The checks. Each has one function per parent; the constraint triggers only say when.

CREATE FUNCTION check_job(job_id_ bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
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

CREATE FUNCTION check_version(version_id_ bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
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

CREATE FUNCTION check_document(document_id_ bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
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

CREATE FUNCTION check_at_commit() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
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

-- UPDATE OF: a heartbeat, which touches only the lease, queues nothing. Nor does the birth of an attempt, which its
-- guard ties to a PROCESSING job: the job's own check, queued when it was claimed, finds the attempt.
CREATE CONSTRAINT TRIGGER attempts_check AFTER UPDATE OF status ON indexing_attempts
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION check_at_commit();
CREATE CONSTRAINT TRIGGER jobs_check AFTER INSERT OR UPDATE OF status, worker_id, claim_token ON embedding_jobs
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION check_at_commit();
CREATE CONSTRAINT TRIGGER versions_check
    AFTER INSERT OR UPDATE OF status, chunk_count, embedding_count, active_embedding_count ON document_versions
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION check_at_commit();
CREATE CONSTRAINT TRIGGER documents_check AFTER INSERT OR UPDATE OF status, current_version_id ON documents
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION check_at_commit();
