DO $$
DECLARE
    role_ text := nullif(current_setting('holdfast.app_role', true), '');
BEGIN
    IF role_ IS NOT NULL AND role_ <> current_user THEN
        EXECUTE format('REVOKE ALL ON ALL TABLES IN SCHEMA public FROM %I', role_);
        EXECUTE format('REVOKE USAGE ON SCHEMA public FROM %I', role_);
    END IF;
END $$;
DROP FUNCTION grant_application_role(name);
DROP FUNCTION delete_document_content(bigint);
DROP FUNCTION register_model(text, integer);
