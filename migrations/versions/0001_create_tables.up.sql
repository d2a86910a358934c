-- Every table, its row checks, keys and indexes. What may change, and when, is in 0002 to 0004.
-- Statuses are text with a CHECK: unlike an enum type, a CHECK can drop a value.

CREATE EXTENSION IF NOT EXISTS vector;

-- The retry policy is data: an operator reads and changes it without a release.
CREATE TABLE failure_policies (
    failure_type text CONSTRAINT failure_policies_pkey PRIMARY KEY
        CONSTRAINT policies_type_is_a_word CHECK (failure_type ~ '^[A-Z][A-Z_]{0,62}$'),
    retryable boolean NOT NULL,
    base_delay interval NOT NULL DEFAULT '10 seconds',
    factor numeric NOT NULL DEFAULT 2,
    max_delay interval NOT NULL DEFAULT '5 minutes',
    CONSTRAINT policies_base_delay_not_negative CHECK (base_delay >= '0'),
    -- The upper bounds keep factor ^ 20 inside what an interval can hold; NaN passes no upper bound.
    CONSTRAINT policies_factor_at_least_one CHECK (factor >= 1 AND factor <= 100),
    CONSTRAINT policies_max_delay_at_least_base CHECK (max_delay >= base_delay AND max_delay <= '30 days')
);

INSERT INTO failure_policies (failure_type, retryable) VALUES
    ('STORAGE_UNAVAILABLE', true),
    ('DOCUMENT_CONTENT_INVALID', false),
    ('EMBEDDING_PROVIDER_UNAVAILABLE', true),
    ('EMBEDDING_RESULT_INVALID', false),
    ('INDEXING_STATE_INCONSISTENT', false),
    ('WORKER_INTERNAL_ERROR', true);

-- One row per start of a worker: a restarted worker keeps its name and gets a new id, so it inherits no claim.
CREATE TABLE workers (
    id bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT workers_pkey PRIMARY KEY,
    name text NOT NULL CONSTRAINT workers_name_length CHECK (length(name) BETWEEN 1 AND 255),
    queues text[] NOT NULL,
    concurrency integer NOT NULL CONSTRAINT workers_concurrency_positive CHECK (concurrency >= 1),
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    last_seen_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    stopped_at timestamptz
);
CREATE INDEX workers_running ON workers (last_seen_at) WHERE stopped_at IS NULL;

CREATE TABLE embedding_models (
    id bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT embedding_models_pkey PRIMARY KEY,
    name text NOT NULL CONSTRAINT models_name_is_provider_and_model CHECK (name ~ '^[^:]+:.+$' AND length(name) <= 255),
    dimensions integer NOT NULL CONSTRAINT models_dimensions_fit_a_vector CHECK (dimensions BETWEEN 1 AND 16000),
    CONSTRAINT models_name_and_dimensions_once UNIQUE (name, dimensions)
);

CREATE TABLE documents (
    id bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT documents_pkey PRIMARY KEY,
    owner_id text NOT NULL CONSTRAINT documents_owner_length CHECK (length(owner_id) BETWEEN 1 AND 255),
    name text NOT NULL CONSTRAINT documents_name_length CHECK (octet_length(name) BETWEEN 1 AND 1024),
    status text NOT NULL DEFAULT 'PENDING' CONSTRAINT documents_status_known
        CHECK (status IN ('PENDING', 'INDEXED', 'FAILED', 'CANCELLED', 'DELETED')),
    current_version_id bigint,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT documents_owner_key UNIQUE (id, owner_id),
    CONSTRAINT documents_indexed_iff_current CHECK ((status = 'INDEXED') = (current_version_id IS NOT NULL))
);
CREATE UNIQUE INDEX documents_name_once_per_owner ON documents (owner_id, name) WHERE status <> 'DELETED';
CREATE INDEX documents_of_owner ON documents (owner_id, id);

CREATE TABLE document_versions (
    id bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT document_versions_pkey PRIMARY KEY,
    document_id bigint NOT NULL,
    owner_id text NOT NULL,
    version_no integer NOT NULL CONSTRAINT versions_number_positive CHECK (version_no >= 1),
    status text NOT NULL DEFAULT 'UPLOADED' CONSTRAINT versions_status_known CHECK (
        status IN ('UPLOADED', 'PARSING', 'CHUNKING', 'EMBEDDING', 'STORING', 'INDEXED', 'FAILED', 'CANCELLED')
    ),
    stopped_stage text CONSTRAINT versions_stopped_stage_known
        CHECK (stopped_stage IN ('UPLOADED', 'PARSING', 'CHUNKING', 'EMBEDDING', 'STORING')),
    storage_uri text NOT NULL CONSTRAINT versions_storage_uri_length CHECK (length(storage_uri) BETWEEN 1 AND 4096),
    content_sha256 text CONSTRAINT versions_sha256_is_hex CHECK (content_sha256 ~ '^[0-9a-f]{64}$'),
    media_type text CONSTRAINT versions_media_type_length CHECK (length(media_type) BETWEEN 1 AND 255),
    size_bytes bigint CONSTRAINT versions_size_not_negative CHECK (size_bytes >= 0),
    model_id bigint NOT NULL CONSTRAINT versions_model_known REFERENCES embedding_models (id),
    request_id text CONSTRAINT versions_request_id_length CHECK (length(request_id) BETWEEN 1 AND 255),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    indexed_at timestamptz,
    -- Kept by the statement triggers of 0004, so that completeness is judged without counting 50,000 rows.
    chunk_count integer NOT NULL DEFAULT 0,
    embedding_count integer NOT NULL DEFAULT 0,
    active_embedding_count integer NOT NULL DEFAULT 0,
    CONSTRAINT versions_number_once_per_document UNIQUE (document_id, version_no),
    CONSTRAINT versions_request_once_per_owner UNIQUE (owner_id, request_id),
    -- What the composite keys of the rows below point at: their repeated ids must agree with the version's.
    CONSTRAINT versions_document_key UNIQUE (id, document_id),
    CONSTRAINT versions_job_key UNIQUE (id, document_id, owner_id),
    CONSTRAINT versions_embedding_key UNIQUE (id, owner_id, model_id),
    CONSTRAINT versions_owner_is_documents_owner
        FOREIGN KEY (document_id, owner_id) REFERENCES documents (id, owner_id),
    CONSTRAINT versions_stopped_iff_stage_kept
        CHECK ((status IN ('FAILED', 'CANCELLED')) = (stopped_stage IS NOT NULL)),
    CONSTRAINT versions_indexed_iff_dated CHECK ((status = 'INDEXED') = (indexed_at IS NOT NULL)),
    CONSTRAINT versions_counts_possible CHECK (
        chunk_count >= 0 AND embedding_count BETWEEN 0 AND chunk_count
        AND active_embedding_count BETWEEN 0 AND embedding_count
    )
);
ALTER TABLE documents ADD CONSTRAINT documents_current_is_own_version
    FOREIGN KEY (current_version_id, id) REFERENCES document_versions (id, document_id);

CREATE TABLE embedding_jobs (
    id bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT embedding_jobs_pkey PRIMARY KEY,
    version_id bigint NOT NULL,
    document_id bigint NOT NULL,
    owner_id text NOT NULL,
    task text NOT NULL DEFAULT 'parse' CONSTRAINT jobs_task_known CHECK (task IN ('parse', 'embed')),
    status text NOT NULL DEFAULT 'PENDING' CONSTRAINT jobs_status_known
        CHECK (status IN ('PENDING', 'PROCESSING', 'INDEXED', 'FAILED', 'CANCELLED')),
    attempt_no integer NOT NULL DEFAULT 0 CONSTRAINT jobs_attempt_no_not_negative CHECK (attempt_no >= 0),
    retry_count integer NOT NULL DEFAULT 0,
    max_retry_count integer NOT NULL CONSTRAINT jobs_max_retry_count_sensible CHECK (max_retry_count BETWEEN 0 AND 1000),
    next_retry_at timestamptz,
    due_at timestamptz NOT NULL GENERATED ALWAYS AS (coalesce(next_retry_at, created_at)) STORED,
    worker_id bigint CONSTRAINT jobs_worker_known REFERENCES workers (id),
    claim_token uuid,
    lease_expires_at timestamptz,
    last_failure_type text,
    last_failure_reason text,
    last_error_message text,
    last_failed_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT jobs_ids_agree_with_version
        FOREIGN KEY (version_id, document_id, owner_id) REFERENCES document_versions (id, document_id, owner_id),
    -- A claim exists exactly while a worker holds the job.
    CONSTRAINT jobs_claimed_iff_processing CHECK (
        (status = 'PROCESSING') = (claim_token IS NOT NULL)
        AND (claim_token IS NULL) = (worker_id IS NULL)
        AND (claim_token IS NULL) = (lease_expires_at IS NULL)
    ),
    CONSTRAINT jobs_next_retry_only_while_pending CHECK (next_retry_at IS NULL OR status = 'PENDING'),
    CONSTRAINT jobs_retry_count_within_budget CHECK (retry_count BETWEEN 0 AND max_retry_count)
);
-- The claim reads these pages and no others: neither future retries nor the other task's jobs are among them.
CREATE INDEX jobs_due ON embedding_jobs (task, due_at, id) WHERE status = 'PENDING';
CREATE INDEX jobs_leased ON embedding_jobs (lease_expires_at) WHERE status = 'PROCESSING';
CREATE UNIQUE INDEX jobs_one_live_per_version ON embedding_jobs (version_id)
    WHERE status IN ('PENDING', 'PROCESSING');
CREATE INDEX jobs_live_of_document ON embedding_jobs (document_id) WHERE status IN ('PENDING', 'PROCESSING');
CREATE INDEX jobs_live_of_owner ON embedding_jobs (owner_id, document_id)
    WHERE status IN ('PENDING', 'PROCESSING');
CREATE INDEX jobs_of_version ON embedding_jobs (version_id, id);

CREATE TABLE indexing_attempts (
    id bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT indexing_attempts_pkey PRIMARY KEY,
    job_id bigint NOT NULL CONSTRAINT attempts_job_known REFERENCES embedding_jobs (id),
    attempt_no integer NOT NULL CONSTRAINT attempts_number_positive CHECK (attempt_no >= 1),
    worker_id bigint NOT NULL CONSTRAINT attempts_worker_known REFERENCES workers (id),
    run_by bigint CONSTRAINT attempts_runner_known REFERENCES workers (id),
    claim_token uuid NOT NULL CONSTRAINT attempts_claim_token_used_once UNIQUE,
    status text NOT NULL DEFAULT 'STARTED' CONSTRAINT attempts_status_known
        CHECK (status IN ('STARTED', 'INDEXED', 'FAILED', 'RELEASED', 'CANCELLED')),
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    stage_started_at timestamptz,
    finished_at timestamptz,
    failed_stage text CONSTRAINT attempts_failed_stage_known
        CHECK (failed_stage IN ('PARSING', 'CHUNKING', 'EMBEDDING', 'STORING')),
    failure_type text CONSTRAINT attempts_failure_type_known REFERENCES failure_policies (failure_type),
    failure_reason text CONSTRAINT attempts_failure_reason_is_a_word
        CHECK (failure_reason ~ '^[A-Z][A-Z0-9_]{0,62}$'),
    error_message text CONSTRAINT attempts_error_message_length
        CHECK (octet_length(error_message) <= 8192 AND error_message ~ '\S'),
    retryable boolean,
    outcome text CONSTRAINT attempts_outcome_known CHECK (outcome IN ('RETRY', 'FAILED')),
    retry_count integer,
    max_retry_count integer,
    next_retry_at timestamptz,
    -- What the provider asked for with its Retry-After; the delay in next_retry_at was lengthened by it.
    retry_after interval,
    CONSTRAINT attempts_number_once_per_job UNIQUE (job_id, attempt_no),
    CONSTRAINT attempts_started_iff_unfinished CHECK ((status = 'STARTED') = (finished_at IS NULL)),
    CONSTRAINT attempts_failed_iff_explained CHECK (
        CASE WHEN status = 'FAILED'
            THEN num_nulls(failed_stage, failure_type, error_message, retryable, outcome,
                           retry_count, max_retry_count) = 0
            ELSE num_nonnulls(failed_stage, failure_type, failure_reason, error_message, retryable, outcome,
                              retry_count, max_retry_count, next_retry_at, retry_after) = 0
        END
    ),
    CONSTRAINT attempts_retry_iff_dated CHECK ((outcome IS NOT DISTINCT FROM 'RETRY') = (next_retry_at IS NOT NULL))
);
CREATE UNIQUE INDEX attempts_one_started_per_job ON indexing_attempts (job_id) WHERE status = 'STARTED';
-- Claims whose stage has not begun: counted at each claim, so it must stay a handful of entries.
CREATE INDEX attempts_not_begun ON indexing_attempts (job_id) WHERE status = 'STARTED' AND stage_started_at IS NULL;

CREATE TABLE parsed_texts (
    version_id bigint CONSTRAINT parsed_texts_pkey PRIMARY KEY
        CONSTRAINT parsed_texts_version_known REFERENCES document_versions (id),
    text text NOT NULL CONSTRAINT parsed_texts_not_blank CHECK (text ~ '\S'),
    page_starts integer[] NOT NULL,
    title text,
    metadata jsonb NOT NULL DEFAULT '{}' CONSTRAINT parsed_texts_metadata_is_object
        CHECK (jsonb_typeof(metadata) = 'object')
);

CREATE TABLE chunks (
    id bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT chunks_pkey PRIMARY KEY,
    version_id bigint NOT NULL CONSTRAINT chunks_version_known REFERENCES document_versions (id),
    chunk_no integer NOT NULL CONSTRAINT chunks_number_not_negative CHECK (chunk_no >= 0),
    text text NOT NULL CONSTRAINT chunks_not_blank CHECK (text ~ '\S'),
    char_start integer NOT NULL,
    char_end integer NOT NULL,
    page_no integer CONSTRAINT chunks_page_positive CHECK (page_no >= 1),
    token_count integer NOT NULL CONSTRAINT chunks_tokens_positive CHECK (token_count >= 1),
    text_sha256 text NOT NULL CONSTRAINT chunks_sha256_is_hex CHECK (text_sha256 ~ '^[0-9a-f]{64}$'),
    CONSTRAINT chunks_number_once_per_version UNIQUE (version_id, chunk_no),
    CONSTRAINT chunks_embedding_key UNIQUE (id, version_id),
    CONSTRAINT chunks_offsets_span_the_text CHECK (char_start >= 0 AND char_end - char_start = char_length(text))
);

CREATE TABLE embeddings (
    chunk_id bigint NOT NULL,
    model_id bigint NOT NULL,
    version_id bigint NOT NULL,
    owner_id text NOT NULL,
    status text NOT NULL DEFAULT 'ACTIVE' CONSTRAINT embeddings_status_known CHECK (status IN ('ACTIVE', 'STALE')),
    -- No length in the type: each model has its own dimensions, which the insert trigger holds equal.
    embedding vector NOT NULL CONSTRAINT embeddings_not_all_zero CHECK (vector_norm(embedding) > 0),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT embeddings_pkey PRIMARY KEY (chunk_id, model_id),
    CONSTRAINT embeddings_chunk_is_versions_chunk
        FOREIGN KEY (chunk_id, version_id) REFERENCES chunks (id, version_id),
    CONSTRAINT embeddings_ids_agree_with_version
        FOREIGN KEY (version_id, owner_id, model_id) REFERENCES document_versions (id, owner_id, model_id)
);
CREATE INDEX embeddings_of_version ON embeddings (version_id);
CREATE INDEX embeddings_active_of_owner ON embeddings (owner_id, model_id) WHERE status = 'ACTIVE';

-- Written by triggers alone, whose ids are right by construction: foreign keys would only cost.
CREATE TABLE indexing_events (
    id bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT indexing_events_pkey PRIMARY KEY,
    document_id bigint NOT NULL,
    version_id bigint,
    job_id bigint,
    attempt_id bigint,
    type text NOT NULL,
    stage text,
    detail jsonb NOT NULL DEFAULT '{}',
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX events_of_document ON indexing_events (document_id, id);

CREATE TABLE processing_failures (
    id bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT processing_failures_pkey PRIMARY KEY,
    document_id bigint NOT NULL,
    version_id bigint NOT NULL,
    job_id bigint NOT NULL CONSTRAINT failures_one_per_job UNIQUE
        CONSTRAINT failures_job_known REFERENCES embedding_jobs (id),
    owner_id text NOT NULL,
    stage text NOT NULL,
    failure_type text NOT NULL CONSTRAINT failures_type_known REFERENCES failure_policies (failure_type),
    retry_count integer NOT NULL,
    errors jsonb NOT NULL CONSTRAINT failures_errors_are_a_list CHECK (jsonb_typeof(errors) = 'array'),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    final_failed_at timestamptz NOT NULL
);
CREATE INDEX failures_of_owner ON processing_failures (owner_id, id);
CREATE INDEX failures_of_document ON processing_failures (document_id, id);

CREATE TABLE notifications (
    id bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT notifications_pkey PRIMARY KEY,
    owner_id text NOT NULL,
    document_id bigint NOT NULL CONSTRAINT notifications_document_known REFERENCES documents (id),
    version_id bigint NOT NULL CONSTRAINT notifications_version_known REFERENCES document_versions (id),
    type text NOT NULL CONSTRAINT notifications_type_known CHECK (type IN ('DOCUMENT_FAILED', 'DOCUMENT_INDEXED')),
    payload jsonb NOT NULL,
    -- Ids are handed out before commits: only the transaction id tells what a reader may have missed.
    transaction_id xid8 NOT NULL DEFAULT pg_current_xact_id(),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    read_at timestamptz
);
CREATE INDEX notifications_of_owner ON notifications (owner_id, transaction_id, id);

-- One row: when any worker last sent a hint to claim. It keeps a fleet from sending one each.
CREATE TABLE claim_hints (
    only_row boolean CONSTRAINT claim_hints_pkey PRIMARY KEY DEFAULT true CONSTRAINT claim_hints_only_row CHECK (only_row),
    sent_at timestamptz NOT NULL DEFAULT '-infinity'
) WITH (fillfactor = 10);
INSERT INTO claim_hints DEFAULT VALUES;
