"""A failure is data about the work: recorded, and perhaps retried. What a rule forbids is in errors.py."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

MAX_MESSAGE_BYTES = 8 * 1024


class FailureType(StrEnum):
    """Why an attempt failed. Held equal to the rows of ``failure_policies``, which say what is retried."""

    STORAGE_UNAVAILABLE = "STORAGE_UNAVAILABLE"
    DOCUMENT_CONTENT_INVALID = "DOCUMENT_CONTENT_INVALID"
    EMBEDDING_PROVIDER_UNAVAILABLE = "EMBEDDING_PROVIDER_UNAVAILABLE"
    EMBEDDING_RESULT_INVALID = "EMBEDDING_RESULT_INVALID"
    INDEXING_STATE_INCONSISTENT = "INDEXING_STATE_INCONSISTENT"
    WORKER_INTERNAL_ERROR = "WORKER_INTERNAL_ERROR"


@dataclass(frozen=True, slots=True)
class Failure:
    """What a stage reports. ``reason`` is an UPPER_CASE word such as PASSWORD_REQUIRED, finer than the type.

    ``retry_after``: the provider asked to be left alone that long; it lengthens the delay, up to the policy's
    ``max_delay``.
    """

    type: FailureType
    message: str
    reason: str | None = None
    retry_after: timedelta | None = None


class StageFailed(Exception):
    """Raised by a stage that knows why it failed."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


_SECRETS = (
    # The scheme may follow: "Authorization: Bearer abc", "authorization=abc", "'Authorization': 'Basic abc'".
    (
        re.compile(
            r"(?i)(authorization['\"]?\s*[:=]\s*['\"]?)(?:(?:bearer|basic|token|aws4-hmac-sha256)\s+)?[^\s'\",;]+"
        ),
        r"\1***",
    ),
    (re.compile(r"(?i)\b(bearer\s+)[a-z0-9._~+/=-]{8,}"), r"\1***"),
    # A scheme has an end: without one, a text such as "a.a.a.…" is searched anew, to its end, from each "a".
    (re.compile(r"(?i)\b([a-z][a-z0-9+.-]{0,30}://)[^\s/@'\"]+@"), r"\1***@"),
    # Signed URLs of S3, GCS and Azure, and the common names of credentials in a query string.
    (
        re.compile(
            r"(?i)([?&](?:x-amz-[a-z-]+|x-goog-[a-z-]+|awsaccesskeyid|signature|sig|expires|se|sv|sp|sr|token|"
            r"access_token|api[_-]?key|key|password|secret)=)[^&\s'\"#]+"
        ),
        r"\1***",
    ),
)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_CUT = " … "
_LONGEST_LOOKED_AT = 64 * 1024  # characters
_LONGEST_WORD = 1024


def clean_error_message(text: str, fallback: str = "no message", secrets: Collection[str] = ()) -> str:
    """Make any text safe to store, show and compare; cleaning a cleaned text changes nothing.

    NUL, lone surrogates and control characters become ``\\ufffd`` (tab and newline stay), secrets become
    ``***``, and what is longer than 8 KiB of UTF-8 keeps its head and tail. A blank text becomes
    ``fallback``, usually the exception's class.

    Args:
        secrets: values of secret settings; those shorter than four characters are ignored, since
            replacing them would garble every message.
    """
    text = ends_of(text)
    for secret in sorted((s for s in secrets if len(s) >= 4), key=len, reverse=True):
        text = text.replace(secret, "***")
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    text = _CONTROL.sub("\ufffd", text).strip() or fallback
    raw = text.encode()
    if len(raw) <= MAX_MESSAGE_BYTES:
        return text
    half = (MAX_MESSAGE_BYTES - len(_CUT.encode())) // 2
    return raw[:half].decode(errors="ignore") + _CUT + raw[-half:].decode(errors="ignore")


def ends_of(text: str) -> str:
    """Head and tail of a text too long to be cleaned whole, cut between words: half a secret is not recognised."""
    if len(text) <= _LONGEST_LOOKED_AT:
        return text
    half = _LONGEST_LOOKED_AT // 2
    head, tail = text[:half], text[-half:]
    last_space = re.search(r"\s\S*\Z", head[-_LONGEST_WORD:])
    first_space = re.search(r"\s", tail[:_LONGEST_WORD])
    head = head[: len(head) - len(last_space.group())] if last_space else head
    tail = tail[first_space.start() :] if first_space else tail
    return head + _CUT + tail
