"""Compound files and HWP 5 documents, written by hand."""

import struct
import zlib
from collections.abc import Mapping, Sequence
from itertools import pairwise

_SECTOR, _MINI_SECTOR, _CUTOFF = 512, 64, 4096
_FREE, _END, _FAT, _NONE = 0xFFFFFFFF, 0xFFFFFFFE, 0xFFFFFFFD, 0xFFFFFFFF


def compound_file(streams: Mapping[str, bytes]) -> bytes:
    """A compound file with these streams; a path may have one storage: ``BodyText/Section0``."""
    mini, sectors = bytearray(), bytearray()
    mini_fat: list[int] = []
    fat: list[int] = []

    def chain(table: list[int], count: int) -> int:
        if not count:
            return _END
        first = len(table)
        table += [*range(first + 1, first + count), _END]
        return first

    def put(content: bytes) -> int:
        start = chain(fat, -(-len(content) // _SECTOR))
        sectors.extend(content + bytes(-len(content) % _SECTOR))
        return start

    places: dict[str, tuple[int, int]] = {}
    for path, content in streams.items():
        if len(content) < _CUTOFF:
            start = chain(mini_fat, -(-len(content) // _MINI_SECTOR))
            mini.extend(content + bytes(-len(content) % _MINI_SECTOR))
        else:
            start = put(content)
        places[path] = (start, len(content))
    mini_start = put(bytes(mini))
    mini_fat_start = put(struct.pack(f"<{len(mini_fat)}I", *mini_fat).ljust(-(-len(mini_fat) // 128) * 512, b"\xff"))

    directory_start = put(_directory(places, mini_start, len(mini)))
    # The FAT describes its own sectors too, so its size is found by trying.
    fat_sectors = 1
    while (len(fat) + fat_sectors) > fat_sectors * 128:
        fat_sectors += 1
    first_fat = len(fat)
    table = [*fat, *[_FAT] * fat_sectors]
    table += [_FREE] * (fat_sectors * 128 - len(table))
    header = struct.pack(
        "<8s16xHHHHH6xIIIIIIIIII",
        bytes.fromhex("D0CF11E0A1B11AE1"),
        0x3E, 3, 0xFFFE, 9, 6,
        0, fat_sectors, directory_start, 0, _CUTOFF,
        mini_fat_start, -(-len(mini_fat) // 128), _END, 0, first_fat,
    )  # fmt: skip
    difat = struct.pack("<108I", *([*range(first_fat + 1, first_fat + fat_sectors)] + [_FREE] * 108)[:108])
    return header + difat + bytes(sectors) + struct.pack(f"<{len(table)}I", *table)


def _directory(places: Mapping[str, tuple[int, int]], mini_start: int, mini_size: int) -> bytes:
    storages = {path.split("/")[0] for path in places if "/" in path}
    top = sorted({path.split("/")[0] for path in places}, key=_order)
    numbers = {name: number for number, name in enumerate([*top, *(path for path in places if "/" in path)], 1)}
    # Siblings form a tree in the order of their names; each has the next one to its right.
    right: dict[str, int] = {}
    first: dict[str, int] = {"": numbers[top[0]]}
    for storage in ["", *storages]:
        own = sorted((path for path in places if path.startswith(f"{storage}/")), key=_order) if storage else top
        first[storage] = numbers[own[0]]
        right |= {left: numbers[following] for left, following in pairwise(own)}
    raw = _entry("Root Entry", 5, mini_start, mini_size, first[""], _NONE)
    for name in numbers:
        kind, child = (1, first[name]) if name in storages else (2, _NONE)
        start, size = places.get(name, (0, 0))
        raw += _entry(name.rpartition("/")[2], kind, start, size, child, right.get(name, _NONE))
    return raw


def _order(path: str) -> tuple[int, str]:
    name = path.rpartition("/")[2]
    return len(name), name.upper()


def _entry(name: str, kind: int, start: int, size: int, child: int, right: int) -> bytes:
    encoded = (name + "\0").encode("utf-16-le")
    return encoded.ljust(64, b"\0") + struct.pack(
        "<HBBIII36xIQ", len(encoded), kind, 1, _NONE, right, child, start, size
    )


def hwp(
    paragraphs: Sequence[str],
    table: Sequence[Sequence[str]] = (),
    flags: int = 1,
    section: bytes | None = None,
) -> bytes:
    """An HWP 5 document: paragraphs, then one table.

    Args:
        flags: of its FileHeader: 1 compressed, 2 password, 4 distribution.
        section: the body instead, as it is stored.
    """
    body = section
    if body is None:
        body = b"".join(_paragraph(text) for text in paragraphs) + (_table(table) if table else b"")
        body = deflated(body) if flags & 1 else body
    properties = _record(16, struct.pack("<H", 1) + bytes(24))  # one section
    header = b"HWP Document File".ljust(32, b"\0") + struct.pack("<II", 0x05000303, flags)
    return compound_file(
        {
            "FileHeader": header.ljust(256, b"\0"),
            "DocInfo": deflated(properties) if flags & 1 else properties,
            "BodyText/Section0": body,
        }
    )


def deflated(content: bytes) -> bytes:
    compressor = zlib.compressobj(9, zlib.DEFLATED, -15)
    return compressor.compress(content) + compressor.flush()


def _paragraph(text: str, level: int = 0) -> bytes:
    # A tab is a control of eight units; the paragraph's end is one of one unit.
    units = text.replace("\t", "\t" + "\0" * 6 + "\t") + "\r"
    header = struct.pack("<IIHBBHHHI", len(units), 0, 0, 0, 0, 0, 0, 0, 0)
    return _record(66, header, level) + _record(67, units.encode("utf-16-le"), level + 1)


def _table(rows: Sequence[Sequence[str]]) -> bytes:
    anchor = "\x0b" + "\0" * 6 + "\x0b\r"
    out = _record(66, struct.pack("<IIHBBHHHI", len(anchor), 0, 0, 0, 0, 0, 0, 0, 0))
    out += _record(67, anchor.encode("utf-16-le"), 1)
    out += _record(71, b" lbt" + bytes(42), 1)
    out += _record(77, struct.pack("<IHH", 0, len(rows), len(rows[0])) + bytes(14), 2)
    for row, cells in enumerate(rows):
        for column, text in enumerate(cells):
            out += _record(72, struct.pack("<HxxIHHHH", 1, 0, column, row, 1, 1) + bytes(30), 2)
            out += _paragraph(text, level=2)
    return out


def _record(tag: int, payload: bytes, level: int = 0) -> bytes:
    size = min(len(payload), 0xFFF)
    head = struct.pack("<I", tag | level << 10 | size << 20)
    return head + (struct.pack("<I", len(payload)) if size == 0xFFF else b"") + payload
