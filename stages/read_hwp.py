"""HWP 5, the binary format of Hangul: a compound file of deflated streams of records.

kreuzberg 4.10.4 finds no text in files that Hangul itself wrote and puts no limit on what it inflates, so we
read the format ourselves (Hancom's "HWP Document File Formats 5.0", revision 1.3, chapters 3 and 4).
"""

import re
import struct
import zlib
from collections.abc import Iterator

from .archive import MIB, inflate
from .cfb import CompoundFile
from .extracted import Extracted
from .invalid import Reason, content_invalid

SIGNATURE = b"HWP Document File"
MAX_BODY_BYTES = 128 * MIB  # of text and its layout; a novel has two
_COMPRESSED, _ENCRYPTED, _DISTRIBUTION, _DRM = 0x1, 0x2, 0x4, 0x10

_PARAGRAPH_HEADER, _PARAGRAPH_TEXT, _CONTROL_HEADER, _LIST_HEADER = 66, 67, 71, 72
_TABLE = b" lbt"  # "tbl ", a little-endian number

# Below 32 a code unit is a control: of one unit, or of eight (its payload, and its code again at the end).
_ONE_UNIT = frozenset({0, 10, 13, *range(24, 32)})
_SHOWN = {9: "\t", 10: "\n", 24: "-", 30: " ", 31: " "}


def read_hwp(file: CompoundFile) -> Extracted:
    """The text of an HWP 5 document, tables row by row, notes behind the paragraph they belong to.

    Raises:
        StageFailed: PASSWORD_REQUIRED, UNSUPPORTED_TYPE (locked for distribution), ARCHIVE_UNSAFE, CORRUPT.
    """
    header = file.read("FileHeader")
    if len(header) < 40:
        raise _corrupt("its FileHeader is cut short")
    version, flags = struct.unpack_from("<II", header, 32)
    if flags & _ENCRYPTED:
        raise content_invalid(
            Reason.PASSWORD_REQUIRED, "the HWP document needs a password: upload it saved without one"
        )
    if flags & (_DISTRIBUTION | _DRM):
        raise content_invalid(
            Reason.UNSUPPORTED_TYPE,
            "the HWP document is locked (distribution copy or DRM), so its text cannot be read: upload the original",
        )
    sections = sorted(
        (path for path in file.paths if re.fullmatch(r"BodyText/Section\d+", path)),
        key=lambda path: int(path.removeprefix("BodyText/Section")),
    )
    if not sections:
        raise _corrupt("it has no body")
    budget = MAX_BODY_BYTES
    texts = []
    for path in sections:
        raw = file.read(path)
        if flags & _COMPRESSED:
            raw = _inflate(raw, budget)
        budget -= len(raw)
        texts.append(_text_of(raw))
    return Extracted("\n\n".join(texts), metadata={"hwp_version": ".".join(map(str, version.to_bytes(4)))})


def _inflate(raw: bytes, budget: int) -> bytes:
    content = bytearray()
    try:
        for piece in inflate(memoryview(raw)):
            content += piece
            if len(content) > budget:
                raise content_invalid(
                    Reason.ARCHIVE_UNSAFE,
                    f"the HWP document inflates to more than {MAX_BODY_BYTES // MIB} MiB",
                )
    except zlib.error as error:
        raise _corrupt(str(error)) from error
    return bytes(content)


def _text_of(section: bytes) -> str:
    lines: list[str] = []
    tables: list[tuple[int, int]] = []  # of each open table: the level of its cells, the row written last
    paragraph_of_cell = 0
    for tag, level, payload in _records(section):
        while tables and level < tables[-1][0]:
            tables.pop()
        if tag == _CONTROL_HEADER and payload[:4] == _TABLE:
            tables.append((level + 1, -1))
        elif tag == _LIST_HEADER and tables and level == tables[-1][0] and len(payload) >= 12:
            row = struct.unpack_from("<H", payload, 10)[0]  # behind the 8 bytes of every list: column, row
            lines.append("\n" if row != tables[-1][1] else " | ")
            tables[-1] = (level, row)
            paragraph_of_cell = 0
        elif tag == _PARAGRAPH_TEXT:
            text = _characters(payload)
            if tables:
                lines.append(" " if paragraph_of_cell else "")
                paragraph_of_cell += 1
            else:
                lines.append("\n")
            lines.append(text)
        elif tag == _PARAGRAPH_HEADER and not tables:
            lines.append("\n")
    return re.sub(r"\n{3,}", "\n\n", "".join(lines)).strip()


def _records(section: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Tag, level and payload of each record."""
    at = 0
    while at + 4 <= len(section):
        (head,) = struct.unpack_from("<I", section, at)
        at += 4
        size = head >> 20
        if size == 0xFFF:
            if at + 4 > len(section):
                raise _corrupt("a record is cut short")
            (size,) = struct.unpack_from("<I", section, at)
            at += 4
        if at + size > len(section):
            raise _corrupt("a record is cut short")
        yield head & 0x3FF, head >> 10 & 0x3FF, section[at : at + size]
        at += size


def _characters(payload: bytes) -> str:
    units = struct.unpack(f"<{len(payload) // 2}H", payload[: len(payload) & ~1])
    kept: list[int] = []
    at = 0
    while at < len(units):
        unit = units[at]
        if unit >= 32:
            kept.append(unit)
        elif unit in _SHOWN:
            kept.append(ord(_SHOWN[unit]))
        at += 1 if unit >= 32 or unit in _ONE_UNIT else 8
    return struct.pack(f"<{len(kept)}H", *kept).decode("utf-16-le", errors="replace").strip("\n")


def _corrupt(what: str) -> Exception:
    return content_invalid(Reason.CORRUPT, f"the HWP document is damaged: {what}")
