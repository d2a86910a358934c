"""HWPX, the open format of Hangul (KS X 6101, OWPML): XML sections in a ZIP archive.

kreuzberg 4.10.4 does not know the format.
"""

import re

from .archive import Archive
from .extracted import Extracted
from .invalid import Reason, content_invalid
from .xml_events import read_xml

# Inside a text run, these stand for characters.
_SHOWN = {"tab": "\t", "lineBreak": "\n", "nbSpace": " ", "fwSpace": " ", "hyphen": "-"}


def read_hwpx(archive: Archive) -> Extracted:
    """The text of an HWPX document, tables row by row, notes behind the paragraph they belong to.

    Raises:
        StageFailed: PASSWORD_REQUIRED, CORRUPT, ARCHIVE_UNSAFE.
    """
    if "META-INF/manifest.xml" in archive and b"encryption-data" in archive.read("META-INF/manifest.xml"):
        raise content_invalid(
            Reason.PASSWORD_REQUIRED, "the HWPX document needs a password: upload it saved without one"
        )
    sections = sorted(
        (name for name in archive.names if re.fullmatch(r"Contents/section\d+\.xml", name)),
        key=lambda name: int(name.removeprefix("Contents/section").removesuffix(".xml")),
    )
    texts = []
    for name in sections:
        section = _Section()
        read_xml(archive.stream(name), section, name)
        texts.append(section.text())
    title = _Title()
    if "Contents/content.hpf" in archive:
        read_xml(archive.stream("Contents/content.hpf"), title, "Contents/content.hpf")
    return Extracted("\n\n".join(texts), title="".join(title.text).strip() or None)


class _Section:
    """Collects paragraphs. A paragraph may hold a table, a note or a box, whose paragraphs are its own."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._paragraphs: list[list[str]] = []  # the open ones, innermost last
        self._rows: list[list[list[str]]] = []  # per open table: the cells of the row, each its paragraphs
        self._in_text = False

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if name == "p":
            self._paragraphs.append([])
        elif name == "t":
            self._in_text = True
        elif name == "tbl" and self._paragraphs:
            self._put("".join(self._paragraphs[-1]))  # what stands before the table comes before its rows
            self._paragraphs[-1].clear()
        elif name == "tr":
            self._rows.append([])
        elif name == "tc" and self._rows:
            self._rows[-1].append([])
        elif self._in_text and name in _SHOWN:
            self.characters(_SHOWN[name])

    def end(self, name: str) -> None:
        if name == "p" and self._paragraphs:
            self._put("".join(self._paragraphs.pop()))
        elif name == "t":
            self._in_text = False
        elif name == "tr" and self._rows:
            cells = self._rows.pop()
            self._put(" | ".join(" ".join(filter(None, cell)) for cell in cells))

    def characters(self, text: str) -> None:
        if self._in_text and self._paragraphs:
            self._paragraphs[-1].append(text)

    def text(self) -> str:
        return re.sub(r"\n{3,}", "\n\n", "\n".join(self._lines)).strip()

    def _put(self, line: str) -> None:
        if self._rows and self._rows[-1]:
            self._rows[-1][-1].append(line)
        else:
            self._lines.append(line)


class _Title:
    """The first ``title`` of the package's metadata."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self._in_title = False
        self._seen = False

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self._in_title = name == "title" and not self._seen

    def end(self, name: str) -> None:
        self._seen = self._seen or self._in_title
        self._in_title = False

    def characters(self, text: str) -> None:
        if self._in_title:
            self.text.append(text)
