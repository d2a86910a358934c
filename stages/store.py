"""Where the bytes of documents are kept: a folder (``file:///folder``) or a bucket (``s3://bucket/prefix``).

What is put is content-addressed: its name is its SHA-256, so the same bytes are kept once, and putting them
again changes nothing. What is read must lie below the configured store: a URI names bytes, it never opens a
door to the machine or to another bucket.
"""

import contextlib
import hashlib
import os
import stat
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol
from urllib.parse import unquote, urlsplit

from domain.failures import Failure, FailureType, StageFailed

from .invalid import Reason, content_invalid

READ_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class StoredFile:
    """Bytes that the store holds: their URI, SHA-256 (hex) and size."""

    uri: str
    sha256: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Source:
    """A document's bytes as read, with their own SHA-256 (hex) and size."""

    content: bytes
    sha256: str
    size_bytes: int


class StorageUriRefused(ValueError):
    """The URI names something outside the configured store; the text says what is allowed."""


class Store(Protocol):
    """A place that keeps bytes by their SHA-256. Failures are ``StageFailed``, STORAGE_UNAVAILABLE."""

    def put_file(self, path: Path) -> StoredFile:
        """Copy a local file into the store, streamed. Safe to repeat.

        Raises:
            OSError: the file itself cannot be read.
        """
        ...

    def put_bytes(self, chunks: Iterable[bytes], max_bytes: int) -> StoredFile:
        """Store what ``chunks`` yields, never holding it whole in memory. Safe to repeat.

        Raises:
            StageFailed: TOO_LARGE, once more than ``max_bytes`` came; nothing is kept then.
        """
        ...

    def refuse_outside(self, uri: str) -> None:
        """Check that ``uri`` lies in this store, without asking whether it exists.

        Raises:
            StorageUriRefused: it does not.
        """
        ...

    def stream(self, uri: str) -> tuple[int, Iterator[bytes]]:
        """The size in bytes that the store tells, and the content piece by piece.

        Raises:
            StorageUriRefused: ``uri`` is not in this store.
            StageFailed: SOURCE_MISSING, or the store cannot be used now.
        """
        ...


def open_store(storage_url: str, s3: Mapping[str, Any] | None = None) -> Store:
    """The store that ``storage_url`` names; opening it contacts nothing.

    ``file:///absolute/folder`` is a folder, made at the first put. ``s3://bucket/prefix`` is S3 or anything
    that speaks its protocol: region, credentials and, for MinIO and the like, the endpoint are read from the
    usual variables (``AWS_REGION``, ``AWS_ACCESS_KEY_ID``, ``AWS_SECRET_ACCESS_KEY``, ``AWS_ENDPOINT_URL``)
    or from the instance's role; an ``http://`` endpoint is allowed, since whoever names it means it.

    Args:
        s3: arguments of obstore's ``S3Store`` that go before the variables (``endpoint``, ``region``,
            ``access_key_id``, ``client_options``, ``retry_config``, …).

    Raises:
        ValueError: the URL is neither form.
    """
    if storage_url.startswith("s3://"):
        from .store_s3 import S3  # obstore's threads do not survive a fork: see the package's docstring

        return S3(storage_url, s3 or {})
    return Folder(storage_url)


def read_source(
    storage_uri: str,
    store_url: str,
    expected_sha256: str | None,
    expected_size: int | None,
    max_bytes: int,
    s3: Mapping[str, Any] | None = None,
) -> Source:
    """Read a document's bytes, whole, and check that they are the ones that were enqueued.

    Args:
        expected_sha256: hex digest known since the upload, or None: then nothing is compared.
        s3: as for ``open_store``.

    Raises:
        StageFailed: DOCUMENT_CONTENT_INVALID (SOURCE_REFUSED, SOURCE_MISSING, TOO_LARGE) or
            STORAGE_UNAVAILABLE (SOURCE_CHANGED: other bytes, or fewer, than expected).
    """
    try:
        size, pieces = open_store(store_url, s3).stream(storage_uri)
    except StorageUriRefused as refused:
        raise content_invalid(Reason.SOURCE_REFUSED, str(refused)) from None
    if size > max_bytes:
        raise too_large(max_bytes, size)
    digest = hashlib.sha256()
    content = bytearray()
    for piece in pieces:
        digest.update(piece)
        content += piece
        if len(content) > max_bytes:  # it grew while it was read
            raise too_large(max_bytes)
    if len(content) != size:
        raise _changed(storage_uri, f"{len(content):,} bytes were read of the {size:,} the store announced")
    if expected_size is not None and size != expected_size:
        raise _changed(storage_uri, f"it has {size:,} bytes; {expected_size:,} were enqueued")
    if expected_sha256 is not None and digest.hexdigest() != expected_sha256.lower():
        raise _changed(storage_uri, f"its SHA-256 is {digest.hexdigest()}; {expected_sha256.lower()} was enqueued")
    return Source(bytes(content), digest.hexdigest(), size)


class Folder:
    """A store in a folder of this machine (or of a network share mounted here)."""

    def __init__(self, storage_url: str) -> None:
        self.root = path_of(storage_url)

    def put_file(self, path: Path) -> StoredFile:
        with path.open("rb") as file:
            return self._put(pieces_of(file))

    def put_bytes(self, chunks: Iterable[bytes], max_bytes: int) -> StoredFile:
        return self._put(limited(chunks, max_bytes))

    def refuse_outside(self, uri: str) -> None:
        self._inside(uri)

    def stream(self, uri: str) -> tuple[int, Iterator[bytes]]:
        path = self._inside(uri)
        with self._reading(path):
            status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise content_invalid(Reason.SOURCE_MISSING, f"local store: {path} is a folder; enqueue the files in it")
        return status.st_size, self._read(path)

    def _read(self, path: Path) -> Iterator[bytes]:
        with self._reading(path), path.open("rb") as file:
            yield from pieces_of(file)

    @contextlib.contextmanager
    def _reading(self, path: Path) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            if not self.root.is_dir():  # a share that is not mounted looks like this
                raise unavailable(f"local store: the folder {self.root} does not exist here now") from None
            raise content_invalid(
                Reason.SOURCE_MISSING, f"local store: no file {path}; upload the document again"
            ) from None
        except OSError as error:
            raise unavailable(f"local store: read {path}: {error.strerror}") from error

    def _inside(self, uri: str) -> Path:
        # Resolved on both sides: the root may be a link itself, and a link below it may lead out.
        try:
            path = path_of(uri).resolve()
            inside = path.is_relative_to(self.root.resolve())
        except (ValueError, OSError, RuntimeError):  # not a file URI; a link to itself
            inside = False
        if not inside:
            raise StorageUriRefused(f"{uri} is not below the configured store file://{self.root}")
        return path

    def _put(self, pieces: Iterator[bytes]) -> StoredFile:
        partial = self.root / ".partial" / uuid.uuid4().hex
        digest, size = hashlib.sha256(), 0
        try:
            partial.parent.mkdir(parents=True, exist_ok=True)
            with partial.open("xb") as file:
                for piece in pieces:
                    digest.update(piece)
                    size += len(piece)
                    file.write(piece)
                file.flush()
                os.fsync(file.fileno())  # the row that names this file is durable, so must the file be
            path = self.root / key_of(digest.hexdigest())
            if not (path.is_file() and path.stat().st_size == size):
                path.parent.mkdir(parents=True, exist_ok=True)
                partial.replace(path)
                _sync_folder(path.parent)
        except OSError as error:
            raise unavailable(f"local store: write below {self.root}: {error.strerror}") from error
        finally:
            with contextlib.suppress(OSError):
                partial.unlink()
        return StoredFile(path.as_uri(), digest.hexdigest(), size)


def path_of(uri: str) -> Path:
    """The absolute path of a ``file:///…`` URI.

    Raises:
        ValueError: it is another kind of URI, is relative, or names another host.
    """
    parts = urlsplit(uri)
    path = Path(unquote(parts.path))
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or not path.is_absolute() or "\0" in str(path):
        raise ValueError(f"{uri} is not file:///absolute/path")
    return path


def key_of(sha256: str) -> str:
    """Where content lies below a store's root: two letters of fan-out, then the whole digest."""
    return f"{sha256[:2]}/{sha256}"


def pieces_of(file: IO[bytes]) -> Iterator[bytes]:
    """What is left of ``file``, a megabyte at a time."""
    while piece := file.read(READ_BYTES):
        yield piece


def limited(chunks: Iterable[bytes], max_bytes: int) -> Iterator[bytes]:
    """``chunks``, until they exceed ``max_bytes`` in all."""
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if size > max_bytes:
            raise too_large(max_bytes)
        yield chunk


def too_large(max_bytes: int, size: int | None = None) -> StageFailed:
    had = f"{size:,} bytes" if size is not None else f"more than {max_bytes:,} bytes"
    return content_invalid(Reason.TOO_LARGE, f"the document has {had}; {max_bytes:,} are allowed (MAX_DOCUMENT_BYTES)")


def unavailable(message: str, reason: str | None = None) -> StageFailed:
    return StageFailed(Failure(FailureType.STORAGE_UNAVAILABLE, message, reason))


def _changed(uri: str, what: str) -> StageFailed:
    return unavailable(f"{uri} is not what was enqueued: {what}", "SOURCE_CHANGED")


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
