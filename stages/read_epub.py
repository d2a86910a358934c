"""EPUB: the pages of the book in reading order.

kreuzberg's reader goes through its HTML converter, with the losses that read_html.py names.
"""

import posixpath
from urllib.parse import unquote

from .archive import Archive
from .charset import decode
from .extracted import Extracted
from .invalid import Reason, content_invalid
from .read_html import declared_charset, read_html
from .xml_events import read_xml

_PAGES = frozenset({"application/xhtml+xml", "text/html", "application/x-dtbook+xml"})


def read_epub(archive: Archive) -> Extracted:
    """The text of every page of the spine.

    Raises:
        StageFailed: PASSWORD_REQUIRED (the book is protected), CORRUPT, ARCHIVE_UNSAFE.
    """
    container = _Container()
    read_xml(archive.stream("META-INF/container.xml"), container, "META-INF/container.xml")
    if container.package not in archive:
        raise _corrupt("its package file is missing")
    package = _Package()
    read_xml(archive.stream(container.package), package, container.package)
    folder = posixpath.dirname(container.package)
    pages = [posixpath.normpath(posixpath.join(folder, unquote(path))) for path in package.pages()]
    if not pages:
        raise _corrupt("its spine is empty")
    if "META-INF/encryption.xml" in archive:
        encrypted = archive.read("META-INF/encryption.xml").decode("utf-8", errors="replace")
        if any(page in encrypted for page in pages):  # fonts alone may be scrambled
            raise content_invalid(Reason.PASSWORD_REQUIRED, "the book is copy-protected, so it cannot be read")
    texts = []
    for page in pages:
        if page not in archive:
            raise _corrupt(f"its page {page} is missing")
        content = archive.read(page)
        texts.append(read_html(decode(content, declared_charset(content)).text).text if content.strip() else "")
    return Extracted("\n\n".join(filter(None, texts)), title="".join(package.title).strip() or None)


class _Container:
    def __init__(self) -> None:
        self.package = ""

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if name == "rootfile" and not self.package:
            self.package = attributes.get("full-path", "")

    def end(self, name: str) -> None: ...

    def characters(self, text: str) -> None: ...


class _Package:
    def __init__(self) -> None:
        self.title: list[str] = []
        self._in_title = False
        self._manifest: dict[str, tuple[str, str]] = {}  # id: path, media type
        self._spine: list[str] = []

    def pages(self) -> list[str]:
        items = [self._manifest[item] for item in self._spine if item in self._manifest]
        return [path for path, media_type in items if media_type in _PAGES]

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if name == "item":
            path, media_type = attributes.get("href", ""), attributes.get("media-type", "")
            self._manifest[attributes.get("id", "")] = (path, media_type)
        elif name == "itemref":
            self._spine.append(attributes.get("idref", ""))
        elif name == "title" and not self.title:
            self._in_title = True

    def end(self, name: str) -> None:
        self._in_title = False

    def characters(self, text: str) -> None:
        if self._in_title:
            self.title.append(text)


def _corrupt(what: str) -> Exception:
    return content_invalid(Reason.CORRUPT, f"the book is damaged: {what}")
