"""Compound files (OLE2): the container of HWP 5, of encrypted office documents and of Office 97.

Format: [MS-CFB]. A file is cut into sectors; a table (FAT) chains them; a directory of 128-byte entries names
the streams; streams under 4,096 bytes lie in 64-byte sectors of a stream of their own.
"""

import struct
from collections.abc import Iterator

from .invalid import Reason, content_invalid

MAGIC = bytes.fromhex("D0CF11E0A1B11AE1")
MAX_ENTRIES = 10_000
_LAST_SECTOR = 0xFFFFFFFA  # above it are marks: end of chain, free, part of the FAT
_STORAGE, _STREAM, _ROOT = 1, 2, 5


class CompoundFile:
    """The streams of a compound file, by their path: ``BodyText/Section0``.

    Raises:
        StageFailed: CORRUPT.
    """

    def __init__(self, content: bytes) -> None:
        self._content = content
        try:
            self._read_structure()
        except (struct.error, IndexError, UnicodeDecodeError) as error:
            raise _corrupt(str(error)) from error

    def __contains__(self, path: str) -> bool:
        return path in self._streams

    @property
    def paths(self) -> list[str]:
        return list(self._streams)

    def read(self, path: str) -> bytes:
        """The content of a stream.

        Raises:
            StageFailed: CORRUPT.
        """
        start, size = self._streams[path]
        try:
            return self._stream(start, size)
        except (struct.error, IndexError) as error:
            raise _corrupt(f"{path}: {error}") from error

    def _read_structure(self) -> None:
        header = self._content[:512]
        if not header.startswith(MAGIC):
            raise _corrupt("it has no compound file header")
        sector_shift, mini_shift = struct.unpack_from("<HH", header, 30)
        if sector_shift not in (9, 12) or mini_shift != 6:
            raise _corrupt(f"sectors of 2^{sector_shift} and 2^{mini_shift} bytes do not exist")
        self._sector = 1 << sector_shift
        fat_count, directory_start = struct.unpack_from("<II", header, 44)
        self._cutoff, mini_start, _, difat_start = struct.unpack_from("<IIII", header, 56)

        fat_sectors = [sector for sector in struct.unpack_from("<109I", header, 76) if sector < _LAST_SECTOR]
        seen = set()
        while difat_start < _LAST_SECTOR and difat_start not in seen:
            seen.add(difat_start)
            numbers = struct.unpack(f"<{self._sector // 4}I", self._read_sector(difat_start))
            fat_sectors += [sector for sector in numbers[:-1] if sector < _LAST_SECTOR]
            difat_start = numbers[-1]
        self._fat: list[int] = []
        for sector in fat_sectors[:fat_count]:
            self._fat += struct.unpack(f"<{self._sector // 4}I", self._read_sector(sector))

        self._mini_fat: list[int] = []
        for sector in self._chain(self._fat, mini_start):
            self._mini_fat += struct.unpack(f"<{self._sector // 4}I", self._read_sector(sector))
        directory = b"".join(map(self._read_sector, self._chain(self._fat, directory_start)))
        self._mini = b""
        self._streams: dict[str, tuple[int, int]] = {}
        self._walk(directory)

    def _walk(self, directory: bytes) -> None:
        entries = [directory[at : at + 128] for at in range(0, len(directory) - 127, 128)][:MAX_ENTRIES]
        if not entries or entries[0][66] != _ROOT:
            raise _corrupt("its root entry is missing")
        root_start, root_size = struct.unpack_from("<IQ", entries[0], 116)
        self._mini = b"".join(map(self._read_sector, self._chain(self._fat, root_start)))[:root_size]
        # Siblings form a binary tree; walked with a list, since a damaged one may be 10,000 deep or a ring.
        todo = [("", struct.unpack_from("<I", entries[0], 76)[0])]
        seen = set()
        while todo:
            above, number = todo.pop()
            if number >= len(entries) or number in seen:
                continue
            seen.add(number)
            entry = entries[number]
            name_length, kind = struct.unpack_from("<HB", entry, 64)
            name = entry[: max(0, min(name_length, 64) - 2)].decode("utf-16-le")
            left, right, child = struct.unpack_from("<III", entry, 68)
            todo += [(above, left), (above, right)]
            if kind == _STORAGE:
                todo.append((f"{above}{name}/", child))
            elif kind == _STREAM:
                start, size = struct.unpack_from("<IQ", entry, 116)
                self._streams[f"{above}{name}"] = (start, size & 0xFFFFFFFF)

    def _stream(self, start: int, size: int) -> bytes:
        if size >= self._cutoff:
            return b"".join(map(self._read_sector, self._chain(self._fat, start)))[:size]
        pieces = (self._mini[number * 64 : number * 64 + 64] for number in self._chain(self._mini_fat, start))
        return b"".join(pieces)[:size]

    def _chain(self, table: list[int], number: int) -> Iterator[int]:
        for _ in range(len(table) + 1):
            if number >= _LAST_SECTOR:
                return
            yield number
            number = table[number]
        raise _corrupt("its sectors form a ring")

    def _read_sector(self, number: int) -> bytes:
        start = (number + 1) * self._sector
        sector = self._content[start : start + self._sector]
        if not sector:
            raise IndexError(f"sector {number} lies behind the end of the file")
        return sector.ljust(self._sector, b"\0")


def _corrupt(what: str) -> Exception:
    return content_invalid(Reason.CORRUPT, f"the compound file is damaged: {what}")
