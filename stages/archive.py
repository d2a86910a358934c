"""ZIP archives, as office documents are, checked before any parser opens them.

A header may say what it likes, so nothing is believed: every entry is really inflated, piece by piece and
counted, before its content is used. Nothing is ever written to disk.
"""

import io
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from .invalid import Reason, content_invalid

MIB = 1024 * 1024
MAX_ENTRIES = 10_000
# What a parser builds from XML is several times the size of the XML, in the memory of one worker.
MAX_INFLATED_BYTES = 256 * MIB
# Deflate reaches 1,032 : 1. Large sheets of nearly equal rows come to about 50 : 1, never to 200 : 1.
MAX_RATIO = 200
RATIO_COUNTS_ABOVE = 16 * MIB
MAX_NESTING = 3

_PIECE = MIB
_STORED, _DEFLATED = zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED


@dataclass
class _Budget:
    inflated: int = 0

    def spend(self, amount: int) -> None:
        self.inflated += amount
        if self.inflated > MAX_INFLATED_BYTES:
            raise _unsafe(f"it inflates to more than {MAX_INFLATED_BYTES // MIB} MiB")


class Archive:
    """An archive whose entries were all checked."""

    def __init__(self, content: bytes, entries: dict[str, zipfile.ZipInfo]) -> None:
        self._content = content
        self._entries = entries
        self.names = list(entries)

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def size(self, name: str) -> int:
        """The size of an entry's content in bytes."""
        return self._entries[name].file_size

    def read(self, name: str) -> bytes:
        """The whole content of an entry, which the check has bounded."""
        return b"".join(self.stream(name))

    def stream(self, name: str) -> Iterator[bytes]:
        """The content of an entry, a megabyte at a time."""
        yield from _inflate(memoryview(self._content), self._entries[name])


def open_archive(content: bytes) -> Archive:
    """Check an archive, and the archives in it, and give access to its entries.

    Raises:
        StageFailed: ARCHIVE_UNSAFE (too many entries, too large or too dense when inflated, headers that lie,
            names that lead out, nested too deep), PASSWORD_REQUIRED, UNSUPPORTED_TYPE (a compression method
            that office documents do not use) or CORRUPT.
    """
    return _check(content, _Budget(), nesting=0)


def _check(content: bytes, budget: _Budget, nesting: int) -> Archive:
    if nesting > MAX_NESTING:
        raise _unsafe(f"archives lie more than {MAX_NESTING} deep in each other")
    infos = _entries(content)
    view = memoryview(content)
    for info in infos:  # all of them: of two with one name, parsers differ in which they take
        inflated, beginning = 0, b""
        for piece in _inflate(view, info):
            inflated += len(piece)
            beginning = beginning or piece[:4]
            budget.spend(len(piece))
            if inflated > info.file_size:
                raise _unsafe(f"{_shown(info)} says it has {info.file_size:,} bytes and goes on after them")
            if inflated > RATIO_COUNTS_ABOVE and inflated > MAX_RATIO * max(1, info.compress_size):
                raise _unsafe(f"{_shown(info)} inflates to more than {MAX_RATIO} times its size")
        if inflated != info.file_size:
            raise _corrupt(f"{_shown(info)} has {inflated:,} of {info.file_size:,} bytes")
        if beginning == b"PK\x03\x04":
            _check(b"".join(_inflate(view, info)), budget, nesting + 1)
    return Archive(content, {info.filename: info for info in infos if not info.is_dir()})


def _entries(content: bytes) -> list[zipfile.ZipInfo]:
    _refuse_crowded_directory(content)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            infos = archive.infolist()
    except (zipfile.BadZipFile, NotImplementedError, ValueError, OverflowError, struct.error, EOFError) as error:
        raise _corrupt(str(error)) from error
    if len(infos) > MAX_ENTRIES:
        raise _unsafe(f"it has {len(infos):,} entries; {MAX_ENTRIES:,} are allowed")
    if sum(info.file_size for info in infos) > MAX_INFLATED_BYTES:
        raise _unsafe(f"it says it inflates to more than {MAX_INFLATED_BYTES // MIB} MiB")
    end = 0
    for info in sorted(infos, key=lambda info: info.header_offset):
        if info.header_offset < end:  # one stretch of bytes, inflated again and again
            raise _unsafe(f"{_shown(info)} overlaps the entry before it")
        end = info.header_offset + 30 + info.compress_size
        if _leads_out(info.orig_filename):
            raise _unsafe(f"{_shown(info)} has a name that leads out of the archive")
        if info.flag_bits & 0x1:
            raise content_invalid(Reason.PASSWORD_REQUIRED, "the document is encrypted: upload it without a password")
        if info.compress_type not in (_STORED, _DEFLATED):
            raise content_invalid(
                Reason.UNSUPPORTED_TYPE,
                f"{_shown(info)} is compressed by method {info.compress_type}, which no office document uses",
            )
    return infos


def _refuse_crowded_directory(content: bytes) -> None:
    """Judge the directory by its size before 100 MB of it become objects."""
    at = content.rfind(b"PK\x05\x06", max(0, len(content) - 65_557))
    if at < 0 or len(content) < at + 22:
        raise _corrupt("its directory is missing, so the file is probably cut short")
    entries, size = struct.unpack_from("<HI", content, at + 10)
    if entries == 0xFFFF or size == 0xFFFFFFFF:
        at = content.rfind(b"PK\x06\x06", 0, at)
        if at >= 0 and len(content) >= at + 48:
            entries, size = struct.unpack_from("<QQ", content, at + 32)
    if entries > MAX_ENTRIES or size > MAX_ENTRIES * 512:
        raise _unsafe(f"its directory lists {entries:,} entries in {size:,} bytes; {MAX_ENTRIES:,} are allowed")


def _inflate(content: memoryview, info: zipfile.ZipInfo) -> Iterator[bytes]:
    at = info.header_offset
    header = bytes(content[at : at + 30])
    if len(header) < 30 or not header.startswith(b"PK\x03\x04"):
        raise _corrupt(f"{_shown(info)} is not where the directory says")
    name_length, extra_length = struct.unpack_from("<HH", header, 26)
    start = at + 30 + name_length + extra_length
    raw = content[start : start + info.compress_size]
    crc = 0
    for piece in _inflate_raw(raw) if info.compress_type == _DEFLATED else _slices(raw):
        crc = zlib.crc32(piece, crc)
        yield piece
    if crc != info.CRC:
        raise _corrupt(f"the checksum of {_shown(info)} is wrong")


def _slices(raw: memoryview) -> Iterator[bytes]:
    for start in range(0, len(raw), _PIECE):
        yield bytes(raw[start : start + _PIECE])


def _inflate_raw(raw: memoryview) -> Iterator[bytes]:
    try:
        yield from inflate(raw)
    except zlib.error as error:
        raise _corrupt(str(error)) from error


def inflate(raw: memoryview) -> Iterator[bytes]:
    """Inflate raw deflate data, a megabyte at a time, however much it becomes.

    Raises:
        zlib.error: it is damaged, or ends too early.
    """
    stream = zlib.decompressobj(-15)
    for start in range(0, len(raw), _PIECE):
        piece = stream.decompress(raw[start : start + _PIECE], _PIECE)
        while piece:
            yield piece
            piece = stream.decompress(stream.unconsumed_tail, _PIECE)
        if stream.eof:
            return
    if raw:
        raise zlib.error("the compressed data ends too early")


def _leads_out(name: str) -> bool:
    return (
        name.startswith(("/", "\\"))
        or "\0" in name
        or re.match(r"[A-Za-z]:", name) is not None
        or ".." in re.split(r"[/\\]", name)
    )


def _shown(info: zipfile.ZipInfo) -> str:
    return f"its entry {info.orig_filename[:100]!r}"


def _unsafe(what: str) -> Exception:
    return content_invalid(Reason.ARCHIVE_UNSAFE, f"the archive was not opened: {what}")


def _corrupt(what: str) -> Exception:
    return content_invalid(Reason.CORRUPT, f"the archive is damaged: {what}")
