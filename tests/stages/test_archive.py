"""Archives that lie, burst or lead out are refused before a parser sees them (B-74)."""

import io
import struct
import subprocess
import sys
import zipfile
import zlib

import pytest

from stages.archive import MAX_ENTRIES, MAX_NESTING, open_archive
from stages.parse import parse

from .conftest import invalid
from .hwp_writer import deflated, hwp
from .office_writer import docx, zipped

MIB = 1024 * 1024


def entry(name: bytes, content: bytes, *, size: int | None = None, method: int = 8, flags: int = 0) -> bytes:
    """The local part of an entry, whose header may say another size."""
    stored = deflated(content) if method == 8 else content
    said = len(content) if size is None else size
    return (
        struct.pack("<4sHHHHHIIIHH", b"PK\x03\x04", 20, flags, method, 0, 0x21, zlib.crc32(content), len(stored), said,
                    len(name), 0) + name + stored
    )  # fmt: skip


def archive(locals_: list[bytes], offsets: list[int] | None = None, entries: int | None = None) -> bytes:
    """An archive made of local parts; ``offsets`` may put several directory entries on one of them."""
    body = b"".join(locals_)
    starts = [sum(map(len, locals_[:index])) for index in range(len(locals_))]
    records = []
    for offset in offsets if offsets is not None else starts:
        header = body[offset : offset + 30]
        name = body[offset + 30 : offset + 30 + struct.unpack_from("<H", header, 26)[0]]
        records.append(b"PK\x01\x02\x14\0" + header[4:30] + bytes(10) + struct.pack("<I", offset) + name)
    directory = b"".join(records)
    count = len(offsets or starts) if entries is None else entries
    return body + directory + struct.pack("<4sHHHHIIH", b"PK\x05\x06", 0, 0, count, count, len(directory), len(body), 0)


def bomb(megabytes: int) -> bytes:
    """So many megabytes of zeros, deflated: one block, which stands for itself, again and again."""
    compressor = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = compressor.compress(bytes(MIB)) + compressor.flush(zlib.Z_FULL_FLUSH)
    return block * megabytes + compressor.flush()


def test_a_sound_archive_is_read() -> None:
    content = archive([entry(b"a.txt", b"one"), entry("한글.txt".encode(), b"two", flags=0x800, method=0)])
    opened = open_archive(content)
    assert {name: opened.read(name) for name in opened.names} == {"a.txt": b"one", "한글.txt": b"two"}


def test_an_entry_that_says_it_is_small_and_is_not_is_unsafe() -> None:
    with invalid("ARCHIVE_UNSAFE") as caught:
        open_archive(archive([entry(b"word/document.xml", b"x" * 5000, size=10)]))
    assert "says it has 10 bytes" in caught[0].message


def test_an_entry_that_says_it_is_larger_than_it_is_is_corrupt() -> None:
    with invalid("CORRUPT"):
        open_archive(archive([entry(b"a", b"x" * 100, size=5000)]))


def test_an_archive_that_says_it_is_huge_is_not_even_inflated() -> None:
    with invalid("ARCHIVE_UNSAFE") as caught:
        open_archive(archive([entry(b"a", b"x", size=0x7FFFFFFF)]))
    assert "256 MiB" in caught[0].message


def test_a_dense_entry_is_unsafe_before_it_is_large() -> None:
    stored = bomb(40)
    raw = struct.pack("<4sHHHHHIIIHH", b"PK\x03\x04", 20, 0, 8, 0, 0x21, 0, len(stored), 40 * MIB, 1, 0) + b"a" + stored
    with invalid("ARCHIVE_UNSAFE") as caught:
        open_archive(archive([raw]))
    assert "200 times" in caught[0].message


def test_many_entries_of_a_harmless_size_are_too_large_together() -> None:
    one = bytes(range(256)) * 4096  # 1 MiB; stored, so that no ratio is at fault
    raw = entry(b"a", one * 16)
    with invalid("ARCHIVE_UNSAFE") as caught:
        open_archive(archive([raw] * 17))
    assert "256 MiB" in caught[0].message


def test_too_many_entries_are_unsafe() -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as written:
        for number in range(MAX_ENTRIES + 1):
            written.writestr(str(number), b"")
    with invalid("ARCHIVE_UNSAFE") as caught:
        open_archive(out.getvalue())
    assert "10,001" in caught[0].message


def test_a_crowded_directory_that_lies_about_its_count_is_unsafe() -> None:
    part = entry(b"a" * 100, b"")
    content = archive([part], offsets=[0] * 40_000, entries=1)
    with invalid("ARCHIVE_UNSAFE"):
        open_archive(content)


def test_entries_that_share_their_bytes_are_unsafe() -> None:
    part = entry(b"a", b"x" * 1000)
    with invalid("ARCHIVE_UNSAFE") as caught:
        open_archive(archive([part], offsets=[0, 0]))
    assert "overlaps" in caught[0].message


@pytest.mark.parametrize("name", ["/etc/passwd", "../a", "word/../../a", "..\\a", "C:\\a", "c:a", "\\a"])
def test_a_name_that_leads_out_is_unsafe(name: str) -> None:
    with invalid("ARCHIVE_UNSAFE") as caught:
        open_archive(archive([entry(name.encode(), b"x")]))
    assert "leads out" in caught[0].message


def test_names_with_dots_that_lead_nowhere_are_fine() -> None:
    assert open_archive(zipped({"a..b/c...xml": "x", ".hidden": "y"})).names == ["a..b/c...xml", ".hidden"]


def test_archives_in_archives_are_checked_and_may_not_go_deep() -> None:
    content = zipped({"a.txt": "text"})
    for _ in range(MAX_NESTING):
        content = zipped({"inner.zip": content})
    open_archive(content)
    with invalid("ARCHIVE_UNSAFE"):
        open_archive(zipped({"inner.zip": content}))
    with invalid("ARCHIVE_UNSAFE"):
        open_archive(zipped({"inner.zip": archive([entry(b"../a", b"x")])}))


def test_nested_archives_share_one_allowance() -> None:
    inner = archive([entry(b"a", bytes(range(256)) * 4096 * 30, method=0)] * 2)
    with invalid("ARCHIVE_UNSAFE") as caught:
        names = [f"{number}.docx" for number in range(5)]
        open_archive(zipped(dict.fromkeys(names, inner), stored=names))
    assert "256 MiB" in caught[0].message


def test_an_encrypted_entry_needs_a_password() -> None:
    with invalid("PASSWORD_REQUIRED"):
        open_archive(archive([entry(b"a", b"x", flags=1)]))


def test_an_unusual_compression_is_not_supported() -> None:
    with invalid("UNSUPPORTED_TYPE"):
        open_archive(archive([entry(b"a", b"x", method=14)]))


@pytest.mark.parametrize("cut", [1, 10, 22, 60, 200])
def test_an_archive_cut_short_is_corrupt(cut: int) -> None:
    with invalid("CORRUPT"):
        open_archive(docx(["text"])[:-cut])


def test_a_wrong_checksum_is_corrupt() -> None:
    content = archive([entry(b"a", b"some text", method=0)]).replace(b"some text", b"some_text")
    with invalid("CORRUPT") as caught:
        open_archive(content)
    assert "checksum" in caught[0].message


def test_an_hwp_document_that_bursts_is_unsafe() -> None:
    with invalid("ARCHIVE_UNSAFE") as caught:
        parse(hwp([], section=bomb(129)), "a.hwp")
    assert "128 MiB" in caught[0].message


def test_a_bomb_costs_neither_memory_nor_time() -> None:
    """In a process of its own, whose peak is its own."""
    program = (
        "import re, sys, time\n"
        "from stages.parse import parse\n"
        "from domain.failures import StageFailed\n"
        "content = sys.stdin.buffer.read()\n"
        "began = time.process_time()\n"
        "try:\n"
        "    parse(content, 'a.docx')\n"
        "except StageFailed as failed:\n"
        "    peak = re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1]\n"
        "    print(failed.failure.reason, peak, time.process_time() - began)\n"
    )
    for said in (100, 200 * MIB):
        stored, name = bomb(1500), b"word/document.xml"
        header = struct.pack("<4sHHHHHIIIHH", b"PK\x03\x04", 20, 0, 8, 0, 0x21, 0, len(stored), said, len(name), 0)
        content = archive([header + name + stored])
        done = subprocess.run([sys.executable, "-c", program], input=content, capture_output=True, timeout=60)
        reason, peak_kib, seconds = done.stdout.decode().split()
        assert reason == "ARCHIVE_UNSAFE"
        assert int(peak_kib) < 100 * 1024
        assert float(seconds) < 3
