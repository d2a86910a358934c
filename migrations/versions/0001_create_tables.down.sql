-- squawk-ignore-file ban-drop-table
DROP TABLE claim_hints, notifications, processing_failures, indexing_events, embeddings, chunks, parsed_texts,
    indexing_attempts, embedding_jobs, document_versions, documents, embedding_models, workers, failure_policies;
-- The extension stays: it may have been there before, and others may use it.
