"""A multipart upload on its way into the store: piece by piece, never whole in memory or in a temporary file.

The store's own thread asks for the next piece when it has written the last: a fast sender waits, and a slow one
holds one of the few upload threads, no longer than ``IDLE_SECONDS`` between two pieces.
"""

import asyncio
import unicodedata
from collections import deque
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import anyio.from_thread
import anyio.to_thread
from fastapi import Request
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import ClientDisconnect

from api.problems import Problem
from stages.store import Store, StoredFile

IDLE_SECONDS = 30.0
MOST_PARTS = 8
FIELD_BYTES = 4 * 1024  # a name has at most 1,024
ENVELOPE_BYTES = 64 * 1024  # boundaries, part headers and fields around the file

Header = tuple[str, str]


@dataclass(frozen=True, slots=True)
class UploadForm:
    """What came: the stored file, the name it was sent with, and the other fields by name."""

    stored: StoredFile
    file_name: str
    fields: dict[str, str]


async def receive_upload(request: Request, store: Store, max_bytes: int, threads: anyio.CapacityLimiter) -> UploadForm:
    """Store the part ``file`` of a ``multipart/form-data`` body.

    Raises:
        Problem: INVALID_REQUEST, TOO_LARGE, REQUEST_TIMEOUT.
        StageFailed: the store cannot be used.
    """
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced[:20]) > max_bytes + ENVELOPE_BYTES:
        raise Problem("TOO_LARGE", f"the body is longer than {max_bytes:,} bytes (MAX_DOCUMENT_BYTES)")
    parts = Parts(request)
    stored: StoredFile | None = None
    file_name = ""
    fields: dict[str, str] = {}
    for _ in range(MOST_PARTS):
        part = await parts.next_part()
        if part is None:
            break
        if part.name == "file":
            if stored is not None:
                raise Problem("INVALID_REQUEST", "one file a request: `file` came twice")
            file_name = part.file_name
            stored = await anyio.to_thread.run_sync(store.put_bytes, parts.pieces(), max_bytes, limiter=threads)
        elif part.name in ("name", "force") and part.name not in fields:
            fields[part.name] = await parts.field(part.name)
        else:
            raise Problem("INVALID_REQUEST", f"{part.name[:50]!r} is not a field of this form, or came twice")
    else:
        raise Problem("INVALID_REQUEST", "the form has too many parts")
    if stored is None:
        raise Problem("INVALID_REQUEST", "the form has no part `file`")
    return UploadForm(stored, file_name, fields)


@dataclass(frozen=True, slots=True)
class Part:
    """The head of a part of the form."""

    name: str
    file_name: str


class Parts:
    """The parts of a form, in the order they come."""

    def __init__(self, request: Request) -> None:
        kind, options = parse_options_header(request.headers.get("content-type", ""))
        boundary = options.get(b"boundary", b"")
        if kind != b"multipart/form-data" or not 1 <= len(boundary) <= 70:
            raise Problem("INVALID_REQUEST", "an upload is multipart/form-data with a part `file`")
        self._body: AsyncIterator[bytes] = request.stream()
        self._events: deque[Part | bytes | None] = deque()  # a head, data, the end of a part
        self._ended = False
        self._headers: list[Header] = []
        self._field = self._value = b""
        self._parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._headers.clear,
                "on_header_field": self._on_header_field,
                "on_header_value": self._on_header_value,
                "on_header_end": self._on_header_end,
                "on_headers_finished": self._on_headers_finished,
                "on_part_data": lambda data, start, end: self._events.append(data[start:end]),
                "on_part_end": lambda: self._events.append(None),
                "on_end": self._on_end,
            },
        )

    async def next_part(self) -> Part | None:
        """The head of the next part; None after the last."""
        while True:
            event = await self._next()
            if isinstance(event, Part):
                return event
            if event is None and self._ended and not self._events:
                return None

    async def field(self, name: str) -> str:
        """The whole value of a short field.

        Raises:
            Problem: INVALID_REQUEST.
        """
        value = b""
        while (piece := await self._next()) is not None:
            value += piece if isinstance(piece, bytes) else b""
            if len(value) > FIELD_BYTES:
                raise Problem("INVALID_REQUEST", f"the field {name} is too long")
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise Problem("INVALID_REQUEST", f"the field {name} is not UTF-8") from None

    def pieces(self) -> Iterator[bytes]:
        """The data of the part, for a thread that was started by ``anyio.to_thread``."""
        while (piece := anyio.from_thread.run(self._next)) is not None:
            if isinstance(piece, bytes):
                yield piece

    async def _next(self) -> Part | bytes | None:
        while not self._events:
            if self._ended:
                return None
            try:
                async with asyncio.timeout(IDLE_SECONDS):
                    piece = await anext(self._body)
                self._parser.write(piece)
                if not piece:
                    self._parser.finalize()
            except TimeoutError:
                raise Problem("REQUEST_TIMEOUT", f"nothing came for {IDLE_SECONDS:.0f} s") from None
            except StopAsyncIteration:
                raise Problem("INVALID_REQUEST", "the form ends before its last boundary") from None
            except ClientDisconnect:
                raise Problem("INVALID_REQUEST", "the sender hung up") from None
            except FormParserError:
                raise Problem("INVALID_REQUEST", "the body is not well-formed multipart/form-data") from None
        return self._events.popleft()

    def _on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._field += data[start:end]

    def _on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _on_header_end(self) -> None:
        self._headers.append((self._field.decode("latin-1").lower(), self._value.decode("latin-1")))
        self._field = self._value = b""

    def _on_headers_finished(self) -> None:
        disposition = dict(self._headers).get("content-disposition", "")
        _, options = parse_options_header(disposition.encode("latin-1"))
        self._events.append(Part(decoded(options.get(b"name", b"")), decoded(options.get(b"filename", b""))))

    def _on_end(self) -> None:
        self._ended = True


def decoded(name: bytes) -> str:
    """A file name as it was meant: UTF-8 from browsers, the code page from older programs on a Korean Windows."""
    for encoding in ("utf-8", "cp949"):
        try:
            return name.decode(encoding)
        except UnicodeDecodeError:
            continue
    return name.decode("latin-1")


def safe_file_name(sent: str) -> str:
    """The last part of the path that was sent with a file, without control characters; it names, and opens nothing.

    Composed (NFC), so that a Korean name from macOS is the same name as from elsewhere.

    Raises:
        Problem: INVALID_REQUEST, nothing is left.
    """
    name = unicodedata.normalize("NFC", sent).replace("\\", "/").rsplit("/", 1)[-1]
    name = "".join(character for character in name if not is_control(character)).strip()
    if name.strip(". ") == "":
        raise Problem("INVALID_REQUEST", "the file has no name; send one in the field `name`")
    return name


def given_name(name: str) -> str:
    """The name an owner gives: a path, a key or a URL, kept as it is, composed (NFC).

    Raises:
        Problem: INVALID_REQUEST, it holds a control character.
    """
    if any(is_control(character) for character in name):
        raise Problem("INVALID_REQUEST", "a name holds no control characters")
    return unicodedata.normalize("NFC", name)


def is_control(character: str) -> bool:
    """Control and format characters, of which some turn a name around on the screen, and halves of characters."""
    return unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp")
