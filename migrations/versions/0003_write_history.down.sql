-- squawk-ignore-file ban-drop-function
DROP TRIGGER jobs_final_failure ON embedding_jobs;
DROP FUNCTION jobs_final_failure();
DROP TRIGGER attempts_history ON indexing_attempts;
DROP TRIGGER attempts_history_of_birth ON indexing_attempts;
DROP FUNCTION attempts_history();
DROP TRIGGER versions_history ON document_versions;
DROP TRIGGER versions_history_of_birth ON document_versions;
DROP FUNCTION versions_history();
DROP TRIGGER documents_history ON documents;
DROP FUNCTION documents_history();
