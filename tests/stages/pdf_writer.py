"""Small PDF files, written by hand: Korean and Latin text, pictures, passwords.

Text is set in a font that is not embedded, by its Unicode values (the predefined CMap UniKS-UTF16-H), so that
viewers show it in a Korean font of their own.
"""

import hashlib
from collections.abc import Sequence

_PADDING = bytes.fromhex("28BF4E5E4E758A4164004E56FFFA01082E2E00B6D0683E802F0CA9FE6453697A")
_PERMISSIONS = -4  # print, copy and change: everything
_FILE_ID = b"holdfast sample!"  # 16 bytes; any will do, and a fixed one keeps the files equal


def pdf(
    pages: Sequence[Sequence[str]],
    title: str = "",
    user_password: str | None = None,
    owner_password: str = "owner",  # noqa: S107 - of a sample
) -> bytes:
    """A PDF with a line of text for each string of each page.

    Args:
        user_password: encrypt the file with it (RC4, 128 bits); the empty one leaves the file open to read.
    """
    streams = [_page_content(lines) for lines in pages]
    return _file([_Stream(stream) for stream in streams], title, user_password, owner_password)


def pdf_of_a_picture() -> bytes:
    """A PDF whose one page shows a grey picture and has no text, as a scan does."""
    picture = b"q 400 0 0 500 100 150 cm BI /W 2 /H 2 /CS /G /BPC 8 ID \x40\x80\xc0\xff EI Q"
    return _file([_Stream(picture)], "", None, "")


class _Stream:
    def __init__(self, content: bytes) -> None:
        self.content = content


def _page_content(lines: Sequence[str]) -> bytes:
    shown = [f"<{line.encode('utf-16-be').hex()}> Tj T*" for line in lines]
    return "\n".join(["BT", "/F1 12 Tf", "18 TL", "60 780 Td", *shown, "ET"]).encode()


def _file(pages: Sequence[_Stream], title: str, user_password: str | None, owner_password: str) -> bytes:
    encrypt, key = _encryption(user_password, owner_password) if user_password is not None else ("", b"")
    first_page = 7
    kids = " ".join(f"{first_page + 2 * index} 0 R" for index in range(len(pages)))
    bodies: list[bytes | _Stream] = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>".encode(),
        b"<< /Type /Font /Subtype /Type0 /BaseFont /HYGoThic-Medium /Encoding /UniKS-UTF16-H"
        b" /DescendantFonts [4 0 R] >>",
        b"<< /Type /Font /Subtype /CIDFontType0 /BaseFont /HYGoThic-Medium /FontDescriptor 5 0 R /DW 1000"
        b" /W [1 95 500] /CIDSystemInfo << /Registry %s /Ordering %s /Supplement 1 >> >>"
        % (_string(b"Adobe", key, 4), _string(b"Korea1", key, 4)),
        b"<< /Type /FontDescriptor /FontName /HYGoThic-Medium /Flags 6 /FontBBox [0 -200 1000 900] /ItalicAngle 0"
        b" /Ascent 880 /Descent -120 /CapHeight 800 /StemV 80 >>",
        b"<< /Title " + _string(("\ufeff" + title).encode("utf-16-be"), key, 6) + b" >>",
    ]
    for index, stream in enumerate(pages):
        content = first_page + 2 * index + 1
        bodies.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents {content} 0 R"
            " /Resources << /Font << /F1 3 0 R >> >> >>".encode()
        )
        bodies.append(stream)

    out = bytearray(b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n")
    offsets = []
    for number, body in enumerate(bodies, 1):
        offsets.append(len(out))
        if isinstance(body, _Stream):
            content_bytes = _rc4_object(key, number, body.content)
            body = b"<< /Length %d >>\nstream\n%s\nendstream" % (len(content_bytes), content_bytes)
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(bodies) + 1)
    out += b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    identity = _FILE_ID.hex()
    out += (
        f"trailer\n<< /Size {len(bodies) + 1} /Root 1 0 R /Info 6 0 R /ID [<{identity}> <{identity}>]{encrypt} >>\n"
        f"startxref\n{table}\n%%EOF\n"
    ).encode()
    return bytes(out)


def _string(value: bytes, key: bytes, number: int) -> bytes:
    return b"<" + _rc4_object(key, number, value).hex().encode() + b">"


def _encryption(user_password: str, owner_password: str) -> tuple[str, bytes]:
    """The standard security handler, revision 3 (ISO 32000-1, 7.6.3, algorithms 2, 3 and 5)."""
    user = (user_password.encode("latin-1") + _PADDING)[:32]
    digest = (owner_password.encode("latin-1") + _PADDING)[:32]
    for _ in range(51):
        digest = _md5(digest)
    owner_entry = user
    for turn in range(20):
        owner_entry = _rc4(bytes(byte ^ turn for byte in digest), owner_entry)
    key = _md5(user + owner_entry + _PERMISSIONS.to_bytes(4, "little", signed=True) + _FILE_ID)
    for _ in range(50):
        key = _md5(key)
    user_entry = _md5(_PADDING + _FILE_ID)
    for turn in range(20):
        user_entry = _rc4(bytes(byte ^ turn for byte in key), user_entry)
    entry = (
        f" /Encrypt << /Filter /Standard /V 2 /R 3 /Length 128 /P {_PERMISSIONS}"
        f" /O <{owner_entry.hex()}> /U <{user_entry.hex()}{'00' * 16}> >>"
    )
    return entry, key


def _rc4_object(key: bytes, number: int, content: bytes) -> bytes:
    return _rc4(_md5(key + number.to_bytes(3, "little") + b"\0\0"), content) if key else content


def _md5(content: bytes) -> bytes:
    return hashlib.md5(content, usedforsecurity=False).digest()


def _rc4(key: bytes, content: bytes) -> bytes:
    state = list(range(256))
    swap = 0
    for index in range(256):
        swap = (swap + state[index] + key[index % len(key)]) % 256
        state[index], state[swap] = state[swap], state[index]
    out = bytearray()
    index = swap = 0
    for byte in content:
        index = (index + 1) % 256
        swap = (swap + state[index]) % 256
        state[index], state[swap] = state[swap], state[index]
        out.append(byte ^ state[(state[index] + state[swap]) % 256])
    return bytes(out)
