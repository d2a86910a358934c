"""The embedding model this deployment is set to."""

from functools import cache

from domain.begin import Model
from domain.enqueue import register_model
from domain.failures import Failure, FailureType, StageFailed
from settings import settings
from stages.embed import Embedder, open_embedder
from tasks.database import run_transaction


@cache
def configured_embedder() -> Embedder:
    """The embedder of the settings, opened once per process."""
    values = settings()
    return open_embedder(
        values.embedding_provider,
        values.embedding_model,
        values.embedding_dimensions,
        values.embedding_base_url,
        values.embedding_api_key.get_secret_value() if values.embedding_api_key else None,
    )


@cache
def configured_model_id() -> int:
    """The row of the configured model, made where it is new, in a transaction of its own; asked once."""
    embedder = configured_embedder()
    return run_transaction(lambda connection: register_model(connection, embedder.model_name, embedder.dimensions))


def embedder_for(model: Model) -> Embedder:
    """The embedder that a version's chunks need.

    Raises:
        StageFailed: this deployment is set to another model, or the model has other dimensions now.
    """
    embedder = configured_embedder()
    if (embedder.model_name, embedder.dimensions) == (model.name, model.dimensions):
        return embedder
    raise StageFailed(
        Failure(
            FailureType.INDEXING_STATE_INCONSISTENT,
            f"the version is to be embedded by {model.name} ({model.dimensions} dimensions), but this worker is "
            f"set to {embedder.model_name} ({embedder.dimensions}); set it back, or upload the document again",
            reason="MODEL_UNAVAILABLE",
        )
    )
