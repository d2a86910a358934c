"""PDF, DOCX, PPTX, ODT and RTF, read by kreuzberg.

kreuzberg is imported at the first call only: its threads do not survive a fork (see the package's docstring).
It runs no OCR and keeps no cache. Its own time limit is not used: it gives up waiting, while its thread goes on and
holds PDFium's lock, for which the next document waits. The task's hard limit ends the process, and the thread with it.
"""

import io
import logging
import os
import re
import signal
import zipfile
from typing import TYPE_CHECKING

from .archive import MIB, Archive
from .extracted import Extracted
from .invalid import Reason, content_invalid
from .media_type import DOCX, ODT, PDF, PPTX, RTF
from .rtf_charset import with_unicode
from .xml_events import read_xml

if TYPE_CHECKING:
    from kreuzberg import ExtractionResult

log = logging.getLogger(__name__)

# kreuzberg takes about eleven times as much memory. It is text for 100,000 chunks.
MAX_XML_BYTES = 96 * MIB


def read_pdf(content: bytes) -> Extracted:
    """The text of each page. Owner-password-only files are read.

    Raises:
        StageFailed: PASSWORD_REQUIRED or CORRUPT.
    """
    # Pages are the same in either output, and plain text takes a third of the time. Not result.content: there,
    # lines come twice, or as tables that are not in the document.
    result = _extract(_without_dates(content), PDF, "plain")
    pages = sorted(result.pages or [], key=lambda page: page["page_number"])
    announced = result.metadata.get("page_count") or len(pages)
    if [page["page_number"] for page in pages] != list(range(1, announced + 1)):
        raise content_invalid(Reason.CORRUPT, f"the PDF is damaged: {len(pages)} of {announced} pages can be read")
    return Extracted(
        pages=tuple(page["content"] for page in pages),
        title=_title(result),
        metadata={**_metadata(result), "page_count": len(pages)},
    )


def _without_dates(content: bytes) -> bytes:
    """kreuzberg 4.10.4 panics on a date in Hangul. Renamed entries have the same length, so no offset moves."""
    return content.replace(b"/CreationDate", b"/CreationDat_").replace(b"/ModDate", b"/ModDat_")


def read_docx(archive: Archive) -> Extracted:
    """The text of a DOCX document, with the headings, lists and tables of Markdown.

    Raises:
        StageFailed: ARCHIVE_UNSAFE, CORRUPT.
    """
    _check_xml(archive)
    result = _extract(_without_references(archive), DOCX, "markdown")
    title = _title(result)
    return Extracted(
        _plain(result.content).translate(_REFERENCES_BACK),
        title=title and title.translate(_REFERENCES_BACK),
        metadata=_metadata(result),
    )


def read_pptx(content: bytes, archive: Archive) -> Extracted:
    """The text of the slides and of their notes (which kreuzberg leaves out of Markdown).

    Raises:
        StageFailed: ARCHIVE_UNSAFE, CORRUPT.
    """
    _check_xml(archive)
    result = _extract(content, PPTX, "plain")
    return Extracted(result.content, title=_title(result), metadata=_metadata(result))


def read_odt(content: bytes, archive: Archive) -> Extracted:
    """The text of an ODT document, with the headings, lists and tables of Markdown.

    Raises:
        StageFailed: PASSWORD_REQUIRED, ARCHIVE_UNSAFE, CORRUPT.
    """
    _check_xml(archive)
    if "META-INF/manifest.xml" in archive and b"encryption-data" in archive.read("META-INF/manifest.xml"):
        raise content_invalid(Reason.PASSWORD_REQUIRED, "the document needs a password: upload it saved without one")
    result = _extract(content, ODT, "markdown")
    return Extracted(_plain(result.content), title=_title(result), metadata=_metadata(result))


def read_rtf(content: bytes) -> Extracted:
    """The text of an RTF document.

    Raises:
        StageFailed: CORRUPT.
    """
    result = _extract(with_unicode(content), RTF, "plain")
    return Extracted(result.content, title=_title(result), metadata=_metadata(result))


def _extract(content: bytes, media_type: str, output: str) -> "ExtractionResult":
    import kreuzberg

    config = kreuzberg.ExtractionConfig(
        use_cache=False,
        enable_quality_processing=False,  # it would "normalise" what people wrote
        disable_ocr=True,  # type: ignore[call-arg]  # its stubs do not know it
        output_format=output,
        pages=kreuzberg.PageConfig(extract_pages=True),
        # What repeats on every page is in the document; leaving it out is not ours to decide.
        content_filter=kreuzberg.ContentFilterConfig(
            include_headers=True, include_footers=True, strip_repeating_text=False
        ),
    )
    try:
        return kreuzberg.extract_bytes_sync(content, media_type, config=config)
    except kreuzberg.ParsingError as error:
        said = str(error).removeprefix("ParsingError: ")
        if "poison" in said:
            _end_this_process(said)
        if "password" in said.lower() or "encrypted" in said.lower():
            raise content_invalid(
                Reason.PASSWORD_REQUIRED, "the document needs a password: upload it saved without one"
            ) from error
        parts = list(dict.fromkeys(said.split(": ")))  # it says things twice
        raise content_invalid(Reason.CORRUPT, f"the document is damaged: {': '.join(parts)[:500]}") from error
    except RuntimeError as error:
        if "panicked" in str(error):
            _end_this_process(str(error))
        raise


def _end_this_process(why: str) -> None:
    """End like the crash that it was: a panic leaves PDFium's lock poisoned, and from then on kreuzberg calls every
    sound PDF that this process is given damaged. The worker notices a killed child at once and starts another.
    """
    log.critical("kreuzberg panicked, so this process ends: %s", why[:500])
    os.kill(os.getpid(), signal.SIGKILL)


def _check_xml(archive: Archive) -> None:
    """kreuzberg makes what it can of XML that is cut short or hides its text in entities; half is not a document."""
    size = 0
    for name in archive.names:
        if name.endswith(".xml") and name.startswith(("word/", "ppt/", "content.xml")):
            size += archive.size(name)
            if size > MAX_XML_BYTES:
                raise content_invalid(
                    Reason.TOO_LARGE, f"the document holds more than {MAX_XML_BYTES // MIB} MiB of XML: split it"
                )
            read_xml(archive.stream(name), None, name)


def _title(result: "ExtractionResult") -> str | None:
    title = str(result.metadata.get("title") or "").strip()
    return title if title.lower() not in ("", "untitled") else None


def _metadata(result: "ExtractionResult") -> dict[str, str | int]:
    found: dict[str, str | int] = {}
    authors = result.metadata.get("authors")
    if authors:
        found["author"] = ", ".join(map(str, authors))[:200]
    if created := result.metadata.get("created_at"):
        found["created_at"] = str(created)[:40]
    if result.processing_warnings:
        found["warnings"] = "; ".join(str(warning) for warning in result.processing_warnings)[:500]
    return found


def _plain(markdown: str) -> str:
    r"""Markdown as people would type it: ``R\&D`` is to be found as ``R&D``."""
    return re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", markdown.replace("&#9;", "\t"))


# kreuzberg 4.10.4 loses every reference in a DOCX: "R&amp;D" becomes "RD", "1 &lt; 2" becomes "1 2", and a tab
# glues its neighbours. So references become characters that no text holds, and are turned back afterwards.
_STAND_INS = {"&": "\ufdd0", "<": "\ufdd1", ">": "\ufdd2", '"': "\ufdd3", "'": "\ufdd4"}
_REFERENCES_BACK = {ord(stand_in): character for character, stand_in in _STAND_INS.items()}
_NAMED = {b"amp": "&", b"lt": "<", b"gt": ">", b"quot": '"', b"apos": "'"}
_REFERENCE = re.compile(rb"&(?:(amp|lt|gt|quot|apos)|#([0-9]{1,7})|#x([0-9A-Fa-f]{1,6}));")


def _without_references(archive: Archive) -> bytes:
    """The same document, without references and without its pictures, which nobody reads here."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as repaired:
        for name in archive.names:
            if name.startswith(("word/media/", "word/embeddings/", "word/fonts/")):
                continue
            content = archive.read(name)
            if name.endswith(".xml") and name.startswith(("word/", "docProps/")):
                content = _REFERENCE.sub(_character, content)
                content = content.replace(b"<w:tab/>", b'<w:t xml:space="preserve">\t</w:t>')
            repaired.writestr(name, content)
    return out.getvalue()


def _character(reference: re.Match[bytes]) -> bytes:
    name, decimal, hexadecimal = reference.groups()
    if name:
        return _STAND_INS[_NAMED[name]].encode()
    code = int(decimal) if decimal else int(hexadecimal, 16)
    if code < 0x20 or 0xD800 <= code <= 0xDFFF or code > 0x10FFFF:
        return reference[0]
    return _STAND_INS.get(chr(code), chr(code)).encode()
