"""The S3 side of the store. Importing it imports obstore, which must not be used before a fork."""

import hashlib
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import IO, Any

import obstore
from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import S3Store

from domain.failures import StageFailed

from .invalid import Reason, content_invalid
from .store import StorageUriRefused, StoredFile, key_of, limited, pieces_of, unavailable

PART_BYTES = 8 * 1024 * 1024

# obstore's own defaults (10 retries within 180 s) would hold a stage, and its lease, for minutes: the job's
# own retry is the one that is visible. The timeout spans a whole download.
CLIENT_OPTIONS = {"allow_http": True, "connect_timeout": "5s", "timeout": "120s"}
RETRY_CONFIG = {"max_retries": 2, "retry_timeout": timedelta(seconds=10)}


class S3:
    """A store in a bucket, below a prefix."""

    def __init__(self, storage_url: str, options: Mapping[str, Any]) -> None:
        self.bucket, self.prefix = _split(storage_url.rstrip("/"))
        self._store = S3Store(
            self.bucket,
            **{
                **options,
                "client_options": CLIENT_OPTIONS | dict(options.get("client_options", {})),
                "retry_config": RETRY_CONFIG | dict(options.get("retry_config", {})),
            },
        )

    def put_file(self, path: Path) -> StoredFile:
        with path.open("rb") as file:
            return self._put(file)

    def put_bytes(self, chunks: Iterable[bytes], max_bytes: int) -> StoredFile:
        with tempfile.TemporaryFile() as file:  # the key is the digest, known only at the end
            for chunk in limited(chunks, max_bytes):
                file.write(chunk)
            file.seek(0)
            return self._put(file)

    def refuse_outside(self, uri: str) -> None:
        self._key(uri)

    def stream(self, uri: str) -> tuple[int, Iterator[bytes]]:
        key = self._key(uri)
        try:
            answer = obstore.get(self._store, key)
            return answer.meta["size"], self._read(answer, key)
        except (BaseError, OSError, ValueError) as error:
            raise self._failure("GET", key, error) from error

    def _read(self, answer: "obstore.GetResult", key: str) -> Iterator[bytes]:
        try:
            for piece in answer.stream(min_chunk_size=1024 * 1024):
                yield bytes(piece)
        except (BaseError, OSError) as error:
            raise self._failure("GET", key, error) from error

    def _key(self, uri: str) -> str:
        try:
            bucket, key = _split(uri)
            below = key.removeprefix(f"{self.prefix}/") if self.prefix else key
        except ValueError:
            bucket, key, below = "", "", ""
        odd = any(part in ("", ".", "..") for part in below.split("/")) or "\0" in below
        if bucket != self.bucket or odd or (self.prefix and below == key):
            raise StorageUriRefused(f"{uri} is not below the configured store {self._uri('')}")
        return key

    def _put(self, file: IO[bytes]) -> StoredFile:
        digest, size = hashlib.sha256(), 0
        for piece in pieces_of(file):
            digest.update(piece)
            size += len(piece)
        sha256 = digest.hexdigest()
        key = f"{self.prefix}/{key_of(sha256)}" if self.prefix else key_of(sha256)
        file.seek(0)
        try:
            if not self._holds(key, size):
                if size <= PART_BYTES:
                    obstore.put(self._store, key, file.read())
                else:
                    pieces = _unchanged(pieces_of(file), sha256)
                    obstore.put(self._store, key, pieces, chunk_size=PART_BYTES, max_concurrency=4)
        except (BaseError, OSError) as error:
            raise self._failure("PUT", key, error) from error
        return StoredFile(self._uri(key), sha256, size)

    def _holds(self, key: str, size: int) -> bool:
        try:
            return obstore.head(self._store, key)["size"] == size
        except FileNotFoundError:
            return False

    def _uri(self, key: str) -> str:
        return f"s3://{self.bucket}/{key or self.prefix}"

    def _failure(self, operation: str, key: str, error: Exception) -> StageFailed:
        what = f"S3 store: {operation} {self._uri(key)}: {_said(error)}"
        if isinstance(error, FileNotFoundError):  # obstore's word for 404, of the key and of the bucket
            return content_invalid(Reason.SOURCE_MISSING, what)
        if isinstance(error, ValueError):
            return content_invalid(Reason.SOURCE_REFUSED, what)
        if isinstance(error, PermissionDeniedError | UnauthenticatedError):
            return unavailable(what, "ACCESS_REFUSED")
        return unavailable(what)


def _said(error: Exception) -> str:
    """The request, its host, its status and S3's code: neither the dump of the error's structure that
    follows, nor S3's answer itself, which repeats the access key and the text that was signed."""
    said = str(error).split("\n\nDebug source", 1)[0]
    head, answer, body = said.partition(": <")
    code = re.search(r"<Code>(\w+)</Code>", body) if answer else None
    return f"{head} ({code[1]})" if code else head


def _split(uri: str) -> tuple[str, str]:
    # By hand: a key may hold "?" and "#", which a URL parser would cut off.
    scheme, _, rest = uri.partition("://")
    bucket, _, key = rest.partition("/")
    if scheme != "s3" or not bucket:
        raise ValueError(f"{uri} is not s3://bucket/key")
    return bucket, key


def _unchanged(pieces: Iterator[bytes], sha256: str) -> Iterator[bytes]:
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
        yield piece
    if digest.hexdigest() != sha256:
        raise OSError("the file changed while it was being uploaded")  # ends the multipart upload
