"""The embedding model this deployment is set to, and those that can be asked beside it."""

import threading
from functools import cached_property

from stages.embed import Embedder, open_embedder

from api.database import Database
from domain.begin import Model
from domain.enqueue import register_model
from settings import Settings


class Embedders:
    """Opened once per process and used by its threads; a model is loaded when it is first needed."""

    def __init__(self, values: Settings, database: Database) -> None:
        self._settings = values
        self._database = database
        self._model_id: int | None = None
        self._opening = threading.Lock()

    @cached_property
    def configured(self) -> Embedder:
        """The one of the settings: it embeds what is uploaded from now on."""
        values = self._settings
        key = values.embedding_api_key
        return open_embedder(
            values.embedding_provider,
            values.embedding_model,
            values.embedding_dimensions,
            values.embedding_base_url,
            key.get_secret_value() if key else None,
        )

    def model_id(self) -> int:
        """The row of the configured model, made where it is new."""
        if self._model_id is None:
            with self._opening:
                embedder = self.configured
                self._model_id = self._database.run(
                    lambda connection: register_model(connection, embedder.model_name, embedder.dimensions)
                )
        return self._model_id

    def of(self, model: Model) -> Embedder | None:
        """The embedder of a model that documents were embedded by; None where this deployment cannot ask it."""
        with self._opening:
            embedder = self.configured
        if (embedder.model_name, embedder.dimensions) == (model.name, model.dimensions):
            return embedder
        return None
