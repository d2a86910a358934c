"""A failure is data about the work: recorded, and perhaps retried. What a rule forbids is in errors.py."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from urllib.parse import quote

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


# Each hides what follows a known mark. What one of them leaves never matches again, so that a cleaned text stays
# as it is. Marks are matched as logs, JSON and ``repr`` show them: quoted, escaped or as bytes.
_SECRETS = (
    # A quoted value ends at its quote: {'Authorization': 'Bearer abc', …}, (b'Authorization', b'Basic abc').
    (
        re.compile(r"(?i)(authorization\\*['\"]?\s*[:=,]\s*b?(\\*['\"]))(?:(?!\2)(?:\\.|.))*"),
        r"\1***",
    ),
    # A bare one ends with its line: schemes such as Digest and AWS4-HMAC-SHA256 have parameters after commas.
    (re.compile(r"(?i)(authorization\\*['\"]?\s*[:=]\s*)(?!b?\\*['\"])\S[^\n]*"), r"\1***"),
    (re.compile(r"(?i)(bearer\s+)[^\s'\",;\\]{8,}"), r"\1***"),
    # Up to the last "@" before the path: passwords hold "@" too.
    (re.compile(r"(:(?:\\*/){2})[^\s/?#\"\\]*@"), r"\1***@"),
    # Signed URLs of S3, GCS, Azure, CloudFront and OSS, and the common names of credentials in a query string;
    # "&" may come escaped, as HTML or JSON does it.
    (
        re.compile(
            r"(?i)((?:[?&;]|\\u0026)(?:x-(?:amz|goog|oss)-[a-z0-9-]+|awsaccesskeyid|googleaccessid|ossaccesskeyid|"
            r"key-pair-id|policy|signature|sig|expires|se|sv|sp|sr|st|spr|sks|ske|skt|skv|skoid|sktid|"
            r"token|(?:access|id|refresh|session)[_-]token|auth|api[_-]?key|key|password|passwd|pwd|secret|"
            r"client[_-]secret)=)[^&\s'\"#<>\\]+"
        ),
        r"\1***",
    ),
)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_CUT = " … "
_SHORTEST_SECRET = 4
_LONGEST_LOOKED_AT = 64 * 1024  # characters; looking for secrets in 10 MB would hold a worker for minutes
_LONGEST_WORD = 1024
_NO_MESSAGE = "no message"


def clean_error_message(text: str, fallback: str = _NO_MESSAGE, secrets: Collection[str] = ()) -> str:
    """Make any text safe to store, show and compare; cleaning a cleaned text changes nothing.

    NUL, lone surrogates and control characters become ``\\ufffd`` (tab and newline stay), secrets become
    ``***``, and what is longer than 8 KiB of UTF-8 keeps its head and tail. A blank text becomes
    ``fallback``, usually the exception's class.

    Args:
        secrets: values of secret settings; those shorter than four characters are ignored, since
            replacing them would garble every message.
    """
    # Control characters go first: one in the middle of a password must not hide it.
    hidden = {_CONTROL.sub("\ufffd", secret) for secret in secrets if len(secret) >= _SHORTEST_SECRET}
    hidden |= {quote(secret, safe="") for secret in hidden}
    longest_first = sorted(hidden, key=lambda secret: (-len(secret), secret))
    text = _CONTROL.sub("\ufffd", _ends_of(text))
    # Again after a cut: it can bring together what then looks like a secret itself.
    while (cleaned := _cut(_hide(text, longest_first).strip())) != text:
        text = cleaned
    if text:
        return text
    return clean_error_message(fallback, _NO_MESSAGE, secrets) if fallback.strip() else _NO_MESSAGE


def _hide(text: str, secrets: Sequence[str]) -> str:
    """Hide secrets until none is left: what one of them leaves can complete another."""
    before = None
    while text != before:
        before = text
        for secret in secrets:
            text = text.replace(secret, "***")
        for pattern, replacement in _SECRETS:
            text = pattern.sub(replacement, text)
    return text


def _cut(text: str) -> str:
    raw = text.encode()
    if len(raw) <= MAX_MESSAGE_BYTES:
        return text
    half = (MAX_MESSAGE_BYTES - len(_CUT.encode())) // 2
    return raw[:half].decode(errors="ignore").rstrip() + _CUT + raw[-half:].decode(errors="ignore").lstrip()


def _ends_of(text: str) -> str:
    """Head and tail of a text too long to be looked at whole, cut between words: half a secret is not recognised."""
    if len(text) <= _LONGEST_LOOKED_AT:
        return text
    half = _LONGEST_LOOKED_AT // 2
    head, tail = text[:half], text[-half:]
    last_space = re.search(r"\s\S*\Z", head[-_LONGEST_WORD:])
    first_space = re.search(r"\s", tail[:_LONGEST_WORD])
    head = head[: len(head) - len(last_space.group())] if last_space else head
    tail = tail[first_space.start() :] if first_space else tail
    return head + _CUT + tail
