"""Mail (RFC 5322) to text: its subject, people and date, then what was written.

kreuzberg 4.10.4 reads mail as UTF-8 whatever its parts declare, so that EUC-KR and ISO-2022-JP come out as
garbage; Python's own parser gives the bytes of each part and the name of their encoding.
"""

import re
from email import message_from_bytes
from email.errors import HeaderParseError
from email.header import decode_header
from email.message import Message
from email.policy import compat32

from domain.failures import StageFailed

from .charset import decode, known_encoding
from .extracted import Extracted
from .invalid import Reason, content_invalid
from .read_html import declared_charset, read_html

_SHOWN = ("Subject", "From", "To", "Cc", "Date")
_FIELD = re.compile(rb"[!-9;-~]+:")
# A file beginning with two of these is a mail; "Subject: …" alone may begin any note.
_TELLING = frozenset(
    b"from to cc subject date message-id mime-version received return-path delivered-to reply-to".split()
)


def is_mail(content: bytes) -> bool:
    """Whether ``content`` begins with the header of a mail."""
    head = re.split(rb"\r?\n\r?\n", content[: 64 * 1024].lstrip(b"\r\n"), maxsplit=1)[0]
    fields = [line for line in head.splitlines() if not line.startswith((b" ", b"\t"))]
    if not fields or not all(_FIELD.match(line) for line in fields):
        return False
    telling = {line.split(b":", 1)[0].lower() for line in fields} & _TELLING
    return len(telling) >= 2 and telling != {b"subject", b"date"}


def read_mail(content: bytes) -> Extracted:
    """The text of a mail: of alternatives the plain one, of attachments the names.

    Raises:
        StageFailed: CORRUPT.
    """
    try:
        message = message_from_bytes(content, policy=compat32)
        bodies, attachments = _parts(message)
    except RecursionError:
        raise content_invalid(Reason.CORRUPT, "the mail is damaged: its parts lie too deep in each other") from None
    lines = [f"{name}: {value}" for name in _SHOWN if (value := _header(message, name))]
    if attachments:
        lines.append(f"Attachments: {', '.join(attachments)}")
    title = _header(message, "Subject")
    return Extracted("\n\n".join(["\n".join(lines), *bodies]), title=title or None)


def _parts(message: Message) -> tuple[list[str], list[str]]:
    """The texts to show, and the names of what is attached."""
    if message.get_content_maintype() == "multipart":
        parts = [part for part in message.get_payload() if isinstance(part, Message)]
        if message.get_content_subtype() == "alternative" and len(parts) > 1:
            kinds = [part.get_content_type() for part in parts]
            parts = [parts[kinds.index("text/plain")] if "text/plain" in kinds else parts[-1]]
        bodies, attachments = [], []
        for part in parts:
            some, names = _parts(part)
            bodies += some
            attachments += names
        return bodies, attachments
    name = _decoded(message.get_filename() or "")
    if message.get_content_type() == "message/rfc822":
        inner = message.get_payload()
        if isinstance(inner, list) and inner and isinstance(inner[0], Message):
            subject = _header(inner[0], "Subject")
            bodies, attachments = _parts(inner[0])
            return [f"Subject: {subject}", *bodies] if subject else bodies, attachments
    attached = message.get_content_disposition() == "attachment" or message.get_content_maintype() != "text"
    if attached:
        return [], [name] if name else []
    text = _text(message)
    return [text] if text else [], []


def _text(message: Message) -> str:
    raw = message.get_payload(decode=True)
    if not isinstance(raw, bytes) or not raw.strip():
        return ""
    is_html = message.get_content_subtype() == "html"
    declared = message.get_content_charset() or (declared_charset(raw) if is_html else None)
    text = _as_declared(raw, declared)
    return read_html(text).text if is_html else text.replace("\r\n", "\n").strip()


def _as_declared(raw: bytes, declared: str | None) -> str:
    # A mail says what it is in, and short ones cannot be guessed: believed first, unlike a file.
    encoding = known_encoding(declared) if declared else None
    if encoding:
        try:
            return raw.decode(encoding)
        except UnicodeDecodeError:
            pass
    try:
        return decode(raw, declared).text
    except StageFailed:
        return raw.decode(encoding or "utf-8", errors="replace")


def _header(message: Message, name: str) -> str:
    for field, value in message.raw_items():
        if field.lower() == name.lower():
            return _decoded(str(value))
    return ""


def _decoded(value: str) -> str:
    """A header's value: its encoded words, or eight-bit text that nobody declared."""
    raw = value.encode("utf-8", errors="surrogateescape")
    try:
        parts = [(raw, None)] if not value.isascii() else decode_header(value)
    except (HeaderParseError, ValueError):
        parts = [(raw, None)]
    text = "".join(part if isinstance(part, str) else _as_declared(part, charset) for part, charset in parts)
    return re.sub(r"\s+", " ", text).strip()
