-- Two roles: the owner migrates and owns everything; the application role works through these grants and
-- through two functions of the owner. With one role for both, all of this still works, less protected.

CREATE FUNCTION register_model(name_ text, dimensions_ integer) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
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

CREATE FUNCTION delete_document_content(document_id_ bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
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

REVOKE EXECUTE ON FUNCTION register_model(text, integer), delete_document_content(bigint) FROM PUBLIC;

CREATE FUNCTION grant_application_role(role_ name) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
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
REVOKE EXECUTE ON FUNCTION grant_application_role(name) FROM PUBLIC;

-- Set by migrations/env.py to the user of DATABASE_URL.
DO $$
DECLARE
    role_ text := nullif(current_setting('holdfast.app_role', true), '');
BEGIN
    IF role_ IS NOT NULL AND role_ <> current_user THEN
        PERFORM grant_application_role(role_::name);
    END IF;
END $$;
