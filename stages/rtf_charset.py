r"""RTF whose fonts have charsets of their own.

kreuzberg 4.10.4 reads ``\'c8\'af`` by the document's one code page and not by the font's charset, so that Korean
written by WordPad on an English Windows becomes "È¯". Here such bytes become ``\u54872?`` before it reads them.
"""

import re

# \fcharsetN, by the table of the specification (RTF 1.9.1, "Font Table").
_CODE_PAGES = {
    128: "cp932",
    129: "cp949",
    134: "gb18030",
    136: "big5hkscs",
    161: "cp1253",
    162: "cp1254",
    177: "cp1255",
    178: "cp1256",
    186: "cp1257",
    204: "cp1251",
    222: "cp874",
    238: "cp1250",
}
_FONT = re.compile(rb"\\f(\d+)(?=[^{}]{0,200}?\\fcharset(\d+))[^{};]*;")
# A run of escaped bytes, a group's edge, the words that matter, and all else that begins with a backslash.
_TOKEN = re.compile(rb"((?:\\'[0-9A-Fa-f]{2})+)|([{}])|\\(f|uc|u)(-?\d+) ?|\\(plain) ?|\\(?:[a-z]+-?\d* ?|[^a-z])")


def with_unicode(content: bytes) -> bytes:
    """The same document with the bytes of such fonts as Unicode; unchanged where no font needs it."""
    fonts = {
        number: _CODE_PAGES[int(charset)] for number, charset in _FONT.findall(content) if int(charset) in _CODE_PAGES
    }
    own = re.search(rb"\\ansicpg(\d+)", content[:1024])
    if not set(fonts.values()) - {f"cp{int(own[1])}" if own else ""}:
        return content
    default = re.search(rb"\\deff(\d+)", content[:1024])
    first_font = default[1] if default else b"0"
    font, fallback = first_font, 1  # \ucN: how many characters stand in for each \u
    outer: list[tuple[bytes, int]] = []
    skipped = 0
    parts: list[bytes] = []
    at = 0
    for token in _TOKEN.finditer(content):
        if token.start() > at:
            skipped = max(0, skipped - (token.start() - at))  # plain letters can stand in too
        parts.append(content[at : token.start()])
        at = token.end()
        escaped, edge, word, number, plain = token.groups()
        if escaped:
            kept, rest = escaped[: skipped * 4], escaped[skipped * 4 :]
            skipped -= len(kept) // 4
            parts.append(kept + _unicode(rest, fonts.get(font), fallback))
            continue
        parts.append(token[0])
        if edge == b"{":
            outer.append((font, fallback))
        elif edge and outer:
            font, fallback = outer.pop()
        elif plain:
            font = first_font
        elif word == b"f":
            font = number
        elif word == b"uc":
            fallback = max(0, int(number))
        elif word == b"u":
            skipped = fallback
    parts.append(content[at:])
    return b"".join(parts)


def _unicode(escaped: bytes, encoding: str | None, fallback: int) -> bytes:
    raw = bytes.fromhex(escaped.replace(b"\\'", b"").decode())
    if encoding is None or raw.isascii():
        return escaped
    units = raw.decode(encoding, errors="replace").encode("utf-16-le")
    numbers = (int.from_bytes(units[i : i + 2], "little", signed=True) for i in range(0, len(units), 2))
    return b"".join(b"\\u%d%s" % (number, b"?" * fallback or b" ") for number in numbers)
