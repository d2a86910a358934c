"""The provider openai: that API, or any server that is compatible with it.

The SDK is imported at the first request: it takes 2 s and 45 MB that no other provider needs. Its own retries
are off, since the job's retry is the one that is counted and seen.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from domain.failures import Failure, FailureType, StageFailed

from .embed import model_unavailable

if TYPE_CHECKING:
    from openai import APIStatusError, OpenAI

DEFAULT_URL = "https://api.openai.com/v1"
MAX_RETRY_AFTER = timedelta(days=1)


class OpenAICompatible:
    max_batch = 128
    # The API takes 300,000 tokens in a request; less keeps an answer well within the time of a lease.
    max_batch_tokens = 32_768

    def __init__(
        self, model: str, dimensions: int, base_url: str | None, api_key: str | None, timeout_seconds: float
    ) -> None:
        self.name = f"openai:{model}"
        self.dimensions = dimensions
        self._model = model
        self._url = base_url or DEFAULT_URL
        self._api_key = api_key
        self._timeout_seconds = timeout_seconds
        self._opened: OpenAI | None = None

    def warm(self) -> None:
        self._client()

    def embed(self, texts: Sequence[str], is_query: bool) -> object:
        import openai

        try:
            return self._request(texts)
        except openai.APIStatusError as error:
            if error.status_code == 413 and len(texts) > 1:
                half = len(texts) // 2
                return [*self._list(texts[:half], is_query), *self._list(texts[half:], is_query)]
            raise self._failed(error) from error
        except openai.APITimeoutError as error:
            raise self._unavailable(f"no answer within {self._timeout_seconds:g} s") from error
        except openai.APIConnectionError as error:
            raise self._unavailable(f"no connection: {error.__cause__ or error}") from error

    def _list(self, texts: Sequence[str], is_query: bool) -> list[object]:
        vectors = self.embed(texts, is_query)
        return vectors if isinstance(vectors, list) else []

    def _client(self) -> "OpenAI":
        if self._opened is None:
            try:
                from openai import OpenAI, Timeout
            except ImportError as error:
                raise model_unavailable(f"EMBEDDING_PROVIDER=openai needs the package openai: {error}") from error
            self._opened = OpenAI(
                base_url=self._url,
                api_key=self._api_key or "none",  # servers of one's own often want none, the SDK does
                timeout=Timeout(self._timeout_seconds, connect=min(5.0, self._timeout_seconds)),
                max_retries=0,
            )
        return self._opened

    def _request(self, texts: Sequence[str]) -> list[object]:
        from openai import omit

        # The raw answer: the SDK neither checks its shape nor survives an empty one.
        answer = self._client().embeddings.with_raw_response.create(
            model=self._model,
            input=list(texts),
            encoding_format="float",  # the SDK's own default, base64, is not known everywhere
            # Only that family can be asked for fewer dimensions; other servers refuse the parameter.
            dimensions=self.dimensions if self._model.startswith("text-embedding-3") else omit,
        )
        try:
            body = json.loads(answer.content)
        except ValueError as error:
            raise self._unavailable(f"answered {answer.status_code} with something that is not JSON") from error
        if isinstance(body, dict) and body.get("error"):
            raise self._unavailable(f"answered {answer.status_code} with an error: {self._shown(body['error'])}")
        return self._in_order(body, len(texts))

    def _in_order(self, body: Any, count: int) -> list[object]:
        data = body.get("data") if isinstance(body, dict) else None
        if not isinstance(data, list) or not all(isinstance(item, dict) for item in data):
            raise self._invalid("an answer without a list of vectors")
        indexes = [item.get("index") for item in data]
        if len(data) != count:
            raise self._invalid(f"{len(data)} vectors for {count} texts")
        if not all(type(index) is int for index in indexes) or sorted(indexes) != list(range(count)):
            raise self._invalid(f"indexes that are not 0 to {count - 1}, each once")
        return [item.get("embedding") for item in sorted(data, key=lambda item: int(item["index"]))]

    def _failed(self, error: "APIStatusError") -> StageFailed:
        status, said = error.status_code, f"answered {error.status_code}: {self._shown(error.body)}"
        if status in (400, 413, 422):
            return self._invalid(said, "INPUT_REFUSED", answered=True)
        if status in (401, 403):
            # Its text is left out: some providers repeat the key in it.
            return self._unavailable(f"answered {status}: check EMBEDDING_API_KEY", "PROVIDER_AUTH")
        if status in (404, 405, 410):
            return self._unavailable(f"{said}: check EMBEDDING_BASE_URL and EMBEDDING_MODEL", "PROVIDER_NOT_FOUND")
        wait = retry_after(error.response.headers, datetime.now(UTC))
        if status == 402 or error.code == "insufficient_quota":
            return self._unavailable(f"{said}: its quota is used up", "QUOTA_EXHAUSTED", wait)
        return self._unavailable(said, "RATE_LIMITED" if status == 429 else None, wait)

    def _unavailable(self, what: str, reason: str | None = None, wait: timedelta | None = None) -> StageFailed:
        message = f"embedding provider {self.name} at {self._host()}: POST /embeddings: {what}"
        return StageFailed(
            Failure(FailureType.EMBEDDING_PROVIDER_UNAVAILABLE, self._without_key(message), reason, wait)
        )

    def _invalid(self, what: str, reason: str | None = None, answered: bool = False) -> StageFailed:
        verb = "" if answered else "returned "
        message = f"embedding provider {self.name} at {self._host()}: POST /embeddings: {verb}{what}"
        return StageFailed(Failure(FailureType.EMBEDDING_RESULT_INVALID, self._without_key(message), reason))

    def _host(self) -> str:
        return urlsplit(self._url).netloc.rpartition("@")[2]

    def _shown(self, body: object) -> str:
        said = body.get("message") or body if isinstance(body, dict) else body
        return str(said or "no explanation")[:500]

    def _without_key(self, message: str) -> str:
        return message.replace(self._api_key, "***") if self._api_key else message


def retry_after(headers: Mapping[str, str], now: datetime) -> timedelta | None:
    """How long a provider asks to be left alone: Retry-After in seconds or as a date, at most a day.

    A date is measured against the provider's own clock where it tells it.
    """
    value = headers.get("retry-after", "").strip()
    try:
        wait = timedelta(seconds=float(value))
    except (ValueError, OverflowError):
        at = _date(value)
        if at is None:
            return None
        wait = at - (_date(headers.get("date", "")) or now)
    return min(max(wait, timedelta()), MAX_RETRY_AFTER)


def _date(value: str) -> datetime | None:
    try:
        date = parsedate_to_datetime(value)
    except (ValueError, TypeError):
        return None
    return date if date.tzinfo else date.replace(tzinfo=UTC)
