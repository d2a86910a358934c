-- What a row may become: BEFORE triggers that let only the arrows of ARCHITECTURE.md pass, and set the times.
-- A trigger refuses as a constraint would: SQLSTATE 23514 and a constraint name that states the rule.

CREATE FUNCTION refuse(rule text, message text, advice text DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    IF advice IS NULL THEN
        RAISE EXCEPTION USING MESSAGE = message, ERRCODE = 'check_violation', CONSTRAINT = rule;
    END IF;
    RAISE EXCEPTION USING MESSAGE = message, ERRCODE = 'check_violation', CONSTRAINT = rule, HINT = advice;
END $$;

CREATE FUNCTION task_of_stage(stage text) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT CASE WHEN stage IN ('EMBEDDING', 'STORING') THEN 'embed' ELSE 'parse' END
$$;

CREATE FUNCTION workers_guard() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
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
CREATE TRIGGER workers_guard BEFORE INSERT OR UPDATE ON workers FOR EACH ROW EXECUTE FUNCTION workers_guard();

CREATE FUNCTION documents_guard() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
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
CREATE TRIGGER documents_guard BEFORE INSERT OR UPDATE ON documents FOR EACH ROW EXECUTE FUNCTION documents_guard();

CREATE FUNCTION versions_guard() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
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
CREATE TRIGGER versions_guard BEFORE INSERT OR UPDATE ON document_versions
    FOR EACH ROW EXECUTE FUNCTION versions_guard();

CREATE FUNCTION jobs_guard() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
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
CREATE TRIGGER jobs_guard BEFORE INSERT OR UPDATE ON embedding_jobs FOR EACH ROW EXECUTE FUNCTION jobs_guard();

CREATE FUNCTION attempts_guard() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
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
CREATE TRIGGER attempts_guard BEFORE INSERT OR UPDATE ON indexing_attempts
    FOR EACH ROW EXECUTE FUNCTION attempts_guard();

-- Content is written once. Inserts are judged in 0004, where the version's counters are kept.
CREATE FUNCTION refuse_any_change() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    PERFORM refuse(TG_NAME, format('rows of %s never change', TG_TABLE_NAME));
    RETURN NULL;
END $$;
CREATE TRIGGER parsed_texts_never_change BEFORE UPDATE ON parsed_texts
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_any_change();
CREATE TRIGGER chunks_never_change BEFORE UPDATE ON chunks
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_any_change();
CREATE TRIGGER embeddings_never_change
    BEFORE UPDATE OF chunk_id, model_id, version_id, owner_id, embedding, created_at ON embeddings
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_any_change();
CREATE TRIGGER events_never_change BEFORE UPDATE ON indexing_events
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_any_change();
CREATE TRIGGER failures_never_change BEFORE UPDATE ON processing_failures
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_any_change();
CREATE TRIGGER notifications_only_read
    BEFORE UPDATE OF id, owner_id, document_id, version_id, type, payload, transaction_id, created_at ON notifications
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_any_change();

-- Times are the database's own, whatever a caller sends.
CREATE FUNCTION notifications_date_reading() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    NEW.read_at := coalesce(OLD.read_at, CASE WHEN NEW.read_at IS NOT NULL THEN clock_timestamp() END);
    RETURN NEW;
END $$;
CREATE TRIGGER notifications_date_reading BEFORE UPDATE OF read_at ON notifications
    FOR EACH ROW EXECUTE FUNCTION notifications_date_reading();

-- A hint dated in the future would silence the whole fleet until then.
CREATE FUNCTION claim_hints_date_sending() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    NEW.sent_at := least(NEW.sent_at, clock_timestamp());
    RETURN NEW;
END $$;
CREATE TRIGGER claim_hints_date_sending BEFORE UPDATE OF sent_at ON claim_hints
    FOR EACH ROW EXECUTE FUNCTION claim_hints_date_sending();
