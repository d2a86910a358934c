"""Why a document can never be indexed as it is: the reasons of DOCUMENT_CONTENT_INVALID."""

from enum import StrEnum

from domain.failures import Failure, FailureType, StageFailed


class Reason(StrEnum):
    SOURCE_MISSING = "SOURCE_MISSING"
    SOURCE_REFUSED = "SOURCE_REFUSED"
    EMPTY = "EMPTY"
    TOO_LARGE = "TOO_LARGE"
    UNSUPPORTED_TYPE = "UNSUPPORTED_TYPE"
    ENCODING_UNKNOWN = "ENCODING_UNKNOWN"
    PASSWORD_REQUIRED = "PASSWORD_REQUIRED"  # noqa: S105 - a reason, not a password
    ARCHIVE_UNSAFE = "ARCHIVE_UNSAFE"
    CORRUPT = "CORRUPT"
    NO_TEXT = "NO_TEXT"
    TOO_MANY_CHUNKS = "TOO_MANY_CHUNKS"


def content_invalid(reason: Reason, message: str) -> StageFailed:
    """The failure to raise: ``message`` is read by the document's owner and says what he can do."""
    return StageFailed(Failure(FailureType.DOCUMENT_CONTENT_INVALID, message, reason))
