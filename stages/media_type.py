"""What a document is, told by its content. A name only decides between kinds of text."""

import re
from dataclasses import dataclass
from pathlib import PurePosixPath

from .archive import Archive, open_archive
from .cfb import MAGIC as COMPOUND_FILE
from .cfb import CompoundFile
from .charset import Decoded, decode
from .invalid import Reason, content_invalid
from .read_html import declared_charset
from .read_hwp import SIGNATURE as HWP_SIGNATURE
from .read_mail import is_mail

PDF = "application/pdf"
DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
PPTX = "application/vnd.openxmlformats-officedocument.presentationml.presentation"
ODT = "application/vnd.oasis.opendocument.text"
RTF = "application/rtf"
XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
HWP = "application/x-hwp"
HWPX = "application/hwp+zip"
EPUB = "application/epub+zip"
MAIL = "message/rfc822"
HTML = "text/html"
MARKDOWN = "text/markdown"
CSV = "text/csv"
TSV = "text/tab-separated-values"
JSON = "application/json"
XML = "application/xml"
PLAIN = "text/plain"

_TEXT_BY_SUFFIX = {
    ".md": MARKDOWN,
    ".markdown": MARKDOWN,
    ".csv": CSV,
    ".tsv": TSV,
    ".json": JSON,
    ".xml": XML,
}

_IMAGE = "an image, whose text would have to be recognised first (OCR), which is not done here"
_SOUND = "a sound or video file"
_ARCHIVE = "an archive: unpack it and add the files in it"
_BINARIES = (
    (b"\x89PNG\r\n", _IMAGE),
    (b"\xff\xd8\xff", _IMAGE),
    (b"GIF87a", _IMAGE),
    (b"GIF89a", _IMAGE),
    (b"II*\0", _IMAGE),
    (b"MM\0*", _IMAGE),
    (b"\x1f\x8b", _ARCHIVE),
    (b"7z\xbc\xaf\x27\x1c", _ARCHIVE),
    (b"Rar!\x1a\x07", _ARCHIVE),
    (b"\xfd7zXZ\0", _ARCHIVE),
    (b"\x28\xb5\x2f\xfd", _ARCHIVE),
    (b"ID3\x03", _SOUND),
    (b"ID3\x04", _SOUND),
    (b"OggS\0", _SOUND),
    (b"fLaC\0", _SOUND),
    (b"\x7fELF", "a program"),
    (b"MZ\x90\0", "a program"),
    (b"SQLite format 3\0", "a database"),
    (b"%!PS", "a PostScript file: save it as PDF"),
)


@dataclass(frozen=True, slots=True)
class Sniffed:
    """The media type, and what was opened to find it out: at most one of the three."""

    media_type: str
    archive: Archive | None = None
    compound_file: CompoundFile | None = None
    text: Decoded | None = None


def sniff(content: bytes, name: str) -> Sniffed:
    """Find out what ``content`` is; what is text is decoded on the way.

    Args:
        name: what its owner calls it; only its suffix is looked at, and only if the content is text.

    Raises:
        StageFailed: EMPTY, UNSUPPORTED_TYPE, ENCODING_UNKNOWN, or what opening an archive may raise.
    """
    if not content:
        raise content_invalid(Reason.EMPTY, "the file has no content (0 bytes)")
    if _is_pdf(content):
        return Sniffed(PDF)
    if content.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        archive = open_archive(content)
        return Sniffed(_type_of_archive(archive), archive=archive)
    if content.startswith(COMPOUND_FILE):
        compound_file = CompoundFile(content)
        return Sniffed(_type_of_compound_file(compound_file), compound_file=compound_file)
    if content.startswith(b"{\\rtf"):
        return Sniffed(RTF)
    if content.startswith(HWP_SIGNATURE):
        raise _unsupported("a document of Hangul 97 or older: save it as HWP 5 or HWPX")
    for mark, what in _BINARIES:
        if content.startswith(mark):
            raise _unsupported(what)
    if content[:4] == b"RIFF" and content[8:12] in (b"WAVE", b"AVI ", b"WEBP"):
        raise _unsupported("a sound, video or image file")
    if content[:3] == b"\0\0\0" and content[4:8] == b"ftyp":
        raise _unsupported("a sound, video or image file")
    return _text(content, PurePosixPath(name.split("?", 1)[0]).suffix.lower())


def _is_pdf(content: bytes) -> bool:
    # Viewers accept a kilobyte of anything before the header, and so must not a text that mentions it.
    at = content[:1024].find(b"%PDF-")
    return at == 0 or (at > 0 and (not content[:at].strip(b"\xef\xbb\xbf\0 \t\r\n") or b"startxref" in content[-2048:]))


def _type_of_archive(archive: Archive) -> str:
    declared = archive.read("mimetype")[:100].strip().decode("ascii", errors="replace") if "mimetype" in archive else ""
    if declared in (HWPX, EPUB):
        return declared
    if declared.startswith(ODT):  # and its templates and web pages
        return ODT
    if "[Content_Types].xml" in archive:
        for part, media_type in (
            ("word/document.xml", DOCX),
            ("xl/workbook.xml", XLSX),
            ("ppt/presentation.xml", PPTX),
        ):
            if part in archive:
                return media_type
    if "Contents/section0.xml" in archive:
        return HWPX
    if "META-INF/container.xml" in archive and any(name.endswith(".opf") for name in archive.names):
        return EPUB
    if declared.startswith("application/vnd.oasis.opendocument."):
        raise _unsupported(f"an OpenDocument file of a kind that is not read here ({declared}): save it as PDF")
    if not archive.names:
        raise content_invalid(Reason.EMPTY, "the archive is empty")
    raise _unsupported("a ZIP archive and no office document: unpack it and add the files in it")


def _type_of_compound_file(file: CompoundFile) -> str:
    if "FileHeader" in file and file.read("FileHeader").startswith(HWP_SIGNATURE):
        return HWP
    if "EncryptedPackage" in file:
        raise content_invalid(
            Reason.PASSWORD_REQUIRED, "the office document needs a password: upload it saved without one"
        )
    for stream, what in (
        ("WordDocument", "a Word 97 document: save it as DOCX"),
        ("Workbook", "an Excel 97 spreadsheet: save it as XLSX"),
        ("Book", "an Excel 95 spreadsheet: save it as XLSX"),
        ("PowerPoint Document", "a PowerPoint 97 presentation: save it as PPTX"),
        ("__properties_version1.0", "an Outlook message: save it as EML"),
    ):
        if stream in file:
            raise _unsupported(what)
    raise _unsupported("a compound file of an unknown program")


def _text(content: bytes, suffix: str) -> Sniffed:
    if is_mail(content):
        return Sniffed(MAIL)  # its parts have encodings of their own
    decoded = decode(content, declared_charset(content))
    text = decoded.text.lstrip("\ufeff \t\r\n")
    if _is_html(text, suffix):
        return Sniffed(HTML, text=decoded)
    if text.startswith("<?xml"):
        return Sniffed(XML, text=decoded)
    return Sniffed(_TEXT_BY_SUFFIX.get(suffix, PLAIN), text=decoded)


def _is_html(text: str, suffix: str) -> bool:
    beginning = re.sub(r"<!--.*?(?:-->|$)|<\?xml[^>]*>", "", text[:4096], flags=re.DOTALL).lstrip().lower()
    if beginning.startswith(("<!doctype html", "<html")):
        return True
    return suffix in (".html", ".htm", ".xhtml") and re.search(r"<[a-z!/]", beginning) is not None


def _unsupported(what: str) -> Exception:
    return content_invalid(Reason.UNSUPPORTED_TYPE, f"the file is {what}")
