-- squawk-ignore-file ban-drop-function
DO $$
DECLARE
    role_ text := nullif(current_setting('holdfast.app_role', true), '');
BEGIN
    IF role_ <> current_user AND EXISTS (SELECT FROM pg_roles WHERE rolname = role_) THEN
        -- By name: other tables in the schema are none of ours.
        EXECUTE format(
            'REVOKE ALL ON failure_policies, workers, embedding_models, documents, document_versions, embedding_jobs, '
            'indexing_attempts, parsed_texts, chunks, embeddings, indexing_events, processing_failures, notifications, '
            'claim_hints, alembic_version FROM %I', role_);
        EXECUTE format('REVOKE USAGE ON SCHEMA public FROM %I', role_);
    END IF;
END $$;
DROP FUNCTION grant_application_role(name);
DROP FUNCTION delete_document_content(bigint);
DROP FUNCTION register_model(text, integer);
