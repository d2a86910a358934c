-- Every change writes its own event, final failure and notification, in its own transaction: none can be forgotten.
-- SECURITY DEFINER: the application role may write none of these tables itself.

CREATE FUNCTION documents_history() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
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
CREATE TRIGGER documents_history AFTER INSERT OR UPDATE OF status, current_version_id ON documents
    FOR EACH ROW EXECUTE FUNCTION documents_history();

CREATE FUNCTION versions_history() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
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
CREATE TRIGGER versions_history_of_birth AFTER INSERT ON document_versions
    FOR EACH ROW EXECUTE FUNCTION versions_history();
CREATE TRIGGER versions_history AFTER UPDATE OF status ON document_versions
    FOR EACH ROW WHEN (OLD.status <> NEW.status) EXECUTE FUNCTION versions_history();

CREATE FUNCTION attempts_history() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
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
CREATE TRIGGER attempts_history_of_birth AFTER INSERT ON indexing_attempts
    FOR EACH ROW EXECUTE FUNCTION attempts_history();
CREATE TRIGGER attempts_history AFTER UPDATE OF status ON indexing_attempts
    FOR EACH ROW WHEN (OLD.status <> NEW.status) EXECUTE FUNCTION attempts_history();

CREATE FUNCTION jobs_final_failure() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
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
CREATE TRIGGER jobs_final_failure AFTER UPDATE OF status ON embedding_jobs
    FOR EACH ROW WHEN (NEW.status = 'FAILED' AND OLD.status <> 'FAILED') EXECUTE FUNCTION jobs_final_failure();

-- A trigger needs no EXECUTE to fire, but making one does: whoever could hang these on a temporary table of his own
-- would write history with the owner's rights.
REVOKE EXECUTE ON FUNCTION documents_history(), versions_history(), attempts_history(), jobs_final_failure() FROM PUBLIC;
