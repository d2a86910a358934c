"""What a caller hands in to be indexed, and what of it is acceptable."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from domain.errors import InvalidRequest
from domain.tables import is_storable

LARGEST_SIZE = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Upload:
    """What is to be indexed.

    Args:
        name: what the owner calls it: a path, a key, a URL. The same name again is a new version.
        content_sha256: of the bytes, in hex. Without it, nothing can be recognised as unchanged.
        request_id: makes the upload safe to repeat; unique per owner.
        force: index the bytes again even if they are unchanged.
    """

    owner_id: str
    name: str
    storage_uri: str
    content_sha256: str | None = None
    request_id: str | None = None
    max_retry_count: int = 3
    force: bool = False
    media_type: str | None = None
    size_bytes: int | None = None


def validate(upload: Upload) -> None:
    """Refuse what the tables would refuse, in words for the caller."""
    texts = {
        "owner_id": upload.owner_id,
        "name": upload.name,
        "storage_uri": upload.storage_uri,
        "request_id": upload.request_id,
        "media_type": upload.media_type,
    }
    for field, text in texts.items():
        if text is None:
            continue
        if not is_storable(text):
            raise InvalidRequest(f"{field} holds a NUL or half a character, which PostgreSQL cannot store")
        if text.strip() == "":
            raise InvalidRequest(f"{field} is blank")
    if len(upload.name.encode()) > 1024:
        raise InvalidRequest(f"name is {len(upload.name.encode())} bytes long; at most 1,024 are stored")
    for field in ("owner_id", "request_id", "media_type"):
        if len(texts[field] or "") > 255:
            raise InvalidRequest(f"{field} is longer than 255 characters")
    if len(upload.storage_uri) > 4096:
        raise InvalidRequest("storage_uri is longer than 4,096 characters")
    sha256 = upload.content_sha256
    if sha256 is not None and not (len(sha256) == 64 and set(sha256) <= set("0123456789abcdef")):
        raise InvalidRequest("content_sha256 is not 64 lower-case hexadecimal digits")
    if not 0 <= upload.max_retry_count <= 1000:
        raise InvalidRequest("max_retry_count is not between 0 and 1,000")
    if upload.size_bytes is not None and not 0 <= upload.size_bytes <= LARGEST_SIZE:
        raise InvalidRequest("size_bytes is negative, or more than can be counted")


def distinct_names(uploads: Sequence[Upload]) -> Iterator[list[int]]:
    """Places of uploads in rounds with no name twice: a name given twice becomes two versions, in their order."""
    waiting = list(range(len(uploads)))
    while waiting:
        taken: set[tuple[str, str]] = set()
        later: list[int] = []
        now: list[int] = []
        for place in waiting:
            key = (uploads[place].owner_id, uploads[place].name)
            (later if key in taken else now).append(place)
            taken.add(key)
        yield now
        waiting = later
