"""Bytes to text. Runs only where nothing forks afterwards: see the package's docstring."""

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate

from . import media_type
from .blank import is_blank
from .extracted import Extracted
from .invalid import Reason, content_invalid
from .media_type import Sniffed, sniff
from .read_epub import read_epub
from .read_html import read_html
from .read_hwp import read_hwp
from .read_hwpx import read_hwpx
from .read_mail import read_mail
from .read_office import read_docx, read_odt, read_pdf, read_pptx, read_rtf
from .read_xlsx import read_xlsx

MAX_TITLE_CHARACTERS = 500
# More than any document that is let in holds, unless its parser went wrong or it was made to burst: cleaning and
# storing a gigabyte would take minutes and several times its memory.
MAX_TEXT_CHARACTERS = 128 * 1024 * 1024
_PAGE_BREAK = "\n\n"


@dataclass(frozen=True, slots=True)
class Parsed:
    """The text of a document, ready to be stored: no NUL, no lone surrogate, never blank.

    ``page_starts``: where each page begins in ``text``, strictly ascending, the first at 0; empty for a
    format without pages.
    """

    text: str
    page_starts: tuple[int, ...]
    title: str | None
    metadata: Mapping[str, str | int]
    media_type: str


def parse(content: bytes, name: str) -> Parsed:
    """Extract the text of a document whose kind is told by its content.

    Sets itself no limit of time: the caller's process is the one to be killed. A parser that crashes ends the process.

    Args:
        name: what its owner calls it; decides only between kinds of text.

    Raises:
        StageFailed: DOCUMENT_CONTENT_INVALID with its reason.
    """
    sniffed = sniff(content, name)
    found = _extract(content, sniffed)
    _refuse_too_much(found)
    pages = [_clean(page) for page in found.pages]
    text = _PAGE_BREAK.join(pages) if pages else _clean(found.text)
    if is_blank(text):
        raise content_invalid(Reason.NO_TEXT, _why_no_text(len(pages)))
    return Parsed(
        text,
        _starts(pages),
        _title(found, sniffed.media_type, text),
        _metadata(found, sniffed),
        sniffed.media_type,
    )


def _refuse_too_much(found: Extracted) -> None:
    characters = len(found.text) + sum(map(len, found.pages))
    if characters > MAX_TEXT_CHARACTERS:
        raise content_invalid(
            Reason.TOO_LARGE,
            f"the document holds {characters:,} characters of text; {MAX_TEXT_CHARACTERS:,} are allowed: split it",
        )


def _extract(content: bytes, sniffed: Sniffed) -> Extracted:
    if sniffed.archive is not None:
        match sniffed.media_type:
            case media_type.DOCX:
                return read_docx(sniffed.archive)
            case media_type.PPTX:
                return read_pptx(content, sniffed.archive)
            case media_type.XLSX:
                return read_xlsx(sniffed.archive)
            case media_type.ODT:
                return read_odt(content, sniffed.archive)
            case media_type.HWPX:
                return read_hwpx(sniffed.archive)
            case _:
                return read_epub(sniffed.archive)
    if sniffed.compound_file is not None:
        return read_hwp(sniffed.compound_file)
    if sniffed.text is not None:
        is_html = sniffed.media_type == media_type.HTML
        return read_html(sniffed.text.text) if is_html else Extracted(sniffed.text.text)
    match sniffed.media_type:
        case media_type.PDF:
            return read_pdf(content)
        case media_type.RTF:
            return read_rtf(content)
        case _:
            return read_mail(content)


# What PostgreSQL refuses (NUL), what UTF-8 cannot hold (lone surrogates), and controls that are noise in a
# search result; a vertical tab is Word's line break.
_VERTICAL_TAB = {0x0B: "\n"}
_DROPPED = dict.fromkeys(code for code in range(0x20) if code not in (0x09, 0x0A, 0x0C))
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def _clean(text: str) -> str:
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    text = _LONE_SURROGATE.sub("\ufffd", text).translate(_DROPPED | _VERTICAL_TAB)
    # Hangul from a Mac comes as separate jamo, which neither search nor models take for the same words.
    return unicodedata.normalize("NFC", text)


def _starts(pages: list[str]) -> tuple[int, ...]:
    lengths = (len(page) + len(_PAGE_BREAK) for page in pages[:-1])
    return tuple(accumulate(lengths, initial=0)) if pages else ()


def _why_no_text(page_count: int) -> str:
    if page_count:
        return f"the PDF has {page_count} pages but no text in them: if they are scanned, it needs OCR first"
    return "there is no text in the document"


def _title(found: Extracted, kind: str, text: str) -> str | None:
    title = found.title
    if title is None and kind == media_type.MARKDOWN and (heading := re.search(r"(?m)^# +(.+)$", text)):
        title = heading[1]
    shown = re.sub(r"\s+", " ", _clean(title or "")).strip()
    return shown[:MAX_TITLE_CHARACTERS].rstrip() or None


def _metadata(found: Extracted, sniffed: Sniffed) -> dict[str, str | int]:
    metadata = {key: _clean(value) if isinstance(value, str) else value for key, value in found.metadata.items()}
    if sniffed.text:
        metadata["encoding"] = sniffed.text.encoding
        if sniffed.text.broken:
            metadata["broken_bytes"] = sniffed.text.broken
    if nuls := sum(part.count("\0") for part in (found.text, *found.pages)):
        metadata["removed_nuls"] = nuls
    return metadata
