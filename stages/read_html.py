"""HTML to text with the headings, lists and tables of Markdown.

kreuzberg 4.10.4 drops, without a word, what lies more than about 64 elements deep and everything inside a
``<form>``; Python's own parser takes minutes for 150 KB of ``<a <a <a``. This reads any page once, from the
first to the last character, and drops nothing that a reader of the page sees.
"""

import html
import re
from collections.abc import Iterator

from .extracted import Extracted

# fmt: off
# Elements that begin on a line of their own, by how many line ends part them from what is before and behind.
_LINES = ("dd", "div", "dt", "li", "option", "summary", "tr")
_PARAGRAPHS = (
    "address", "article", "aside", "blockquote", "body", "center", "details", "dialog", "dl", "fieldset",
    "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hgroup", "hr",
    "legend", "main", "nav", "ol", "p", "pre", "section", "table", "tbody", "tfoot", "thead", "ul",
)
# Their content is not for readers: skipped up to the end tag.
_SKIPPED = frozenset((
    "audio", "canvas", "datalist", "iframe", "math", "noscript", "script", "select", "style", "svg", "template",
    "video",
))
# fmt: on
_PARTED = dict.fromkeys(_LINES, 1) | dict.fromkeys(_PARAGRAPHS, 2)
_MARKED = frozenset({"h1", "h2", "h3", "h4", "h5", "h6", "li"})
_SPACES = re.compile(r"[ \t\r\n\f]+")
_TAG = re.compile(r"</?([a-zA-Z][^\s/>]*)")
_ALT = re.compile(r"""\balt\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s>"']+))""", re.IGNORECASE)


def read_html(text: str) -> Extracted:
    """The visible text and the title of a page that is decoded already. Takes time linear in its length."""
    page = _Page()
    for tag, content in _tokens(text):
        if not tag:
            page.write(html.unescape(content))
        elif tag == "/":
            page.end(content)
        else:
            page.begin(tag, content)
    return Extracted(page.text(), title=page.title())


def declared_charset(content: bytes) -> str | None:
    """The encoding that an HTML or XML document names in its first 2 KiB."""
    found = re.search(
        rb"<meta[^>]+charset\s*=\s*[\"']?\s*([\w.:-]+)|<\?xml[^>]+encoding\s*=\s*[\"']([\w.:-]+)",
        content[:2048],
        re.IGNORECASE,
    )
    return (found[1] or found[2]).decode("ascii", errors="replace") if found else None


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    """``("", text)``, ``(name, whole tag)`` for a start tag, ``("/", name)`` for an end tag."""
    at = 0
    unended: set[str] = set()
    while at < len(text):
        start = text.find("<", at)
        if start < 0:
            start = len(text)
        if start > at:
            yield "", text[at:start]
        if start == len(text):
            return
        if text.startswith("<!--", start):
            at = _behind(text, "-->", start + 4)
        elif text.startswith("<![CDATA[", start):
            at = _behind(text, "]]>", start)
            yield "", html.escape(text[start + 9 : at].removesuffix("]]>"))
        elif text.startswith(("<!", "<?"), start):
            at = _behind(text, ">", start)
        elif tag := _TAG.match(text, start):
            at = _tag_end(text, tag.end())
            name = tag[1].lower()
            if text[start + 1] == "/":
                yield "/", name
            elif name in _SKIPPED - unended and text[at - 2 : at] != "/>":
                if ending := re.compile(rf"</{name}\b", re.IGNORECASE).search(text, at):
                    at = _tag_end(text, ending.end())
                else:
                    unended.add(name)  # looked for once: each time would make many of them quadratic
            else:
                yield name, text[start:at]
        else:
            yield "", "<"
            at = start + 1


def _behind(text: str, mark: str, start: int) -> int:
    at = text.find(mark, start)
    return at + len(mark) if at >= 0 else len(text)


def _tag_end(text: str, at: int) -> int:
    """Behind the ``>`` that ends a tag: not one in quotes, unless the quotes never end."""
    first = text.find(">", at)
    while found := re.compile("[>\"']").search(text, at):
        if found[0] == ">":
            return found.end()
        closing = text.find(found[0], found.end())
        if closing < 0:
            break
        at = closing + 1
    return first + 1 if first >= 0 else len(text)


class _Page:
    """Writes text, putting line ends and list marks before the next word rather than at once."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._title: list[str] = []
        self._in_title = False
        self._line_ends = 0  # still to be written
        self._mark = ""  # of a heading or list item that has no text yet
        self._space = False
        self._preformatted = 0
        self._lists: list[int] = []  # of each open list: the number of its last item, -1 where they have none
        self._cells = 0  # of the open table row

    def begin(self, name: str, tag: str) -> None:
        if name == "title":
            self._in_title = not self._title and not tag.endswith("/>")
        elif name in ("td", "th"):
            if self._cells:
                self._parts.append(" |")
                self._space = True
            self._cells += 1
        elif name == "br":
            self._part(1)
        elif name == "img":
            if found := _ALT.search(tag):
                self.write(f" {html.unescape(found[1] or found[2] or found[3] or '')} ")
        elif name in _PARTED:
            self._in_title = False  # its end tag was forgotten
            if name in ("tr", "table"):
                self._cells = 0
            self._part(_PARTED[name])
            self._begin_block(name)

    def _begin_block(self, name: str) -> None:
        if name == "pre":
            self._preformatted += 1
        elif name in ("ul", "ol"):
            self._lists.append(0 if name == "ol" else -1)
        elif name == "li":
            if self._lists and self._lists[-1] >= 0:
                self._lists[-1] += 1
            number = self._lists[-1] if self._lists else -1
            self._mark = "  " * (len(self._lists) - 1) + ("- " if number < 0 else f"{number}. ")
        elif name in _MARKED:
            self._mark = "#" * int(name[1]) + " "

    def end(self, name: str) -> None:
        if name == "title":
            self._in_title = False
        elif name == "pre":
            self._preformatted = max(0, self._preformatted - 1)
        elif name in ("ul", "ol") and self._lists:
            self._lists.pop()
        elif name in ("tr", "table"):
            self._cells = 0
        if name in _PARTED:
            if name in _MARKED:
                self._mark = ""  # it had no text
            self._part(_PARTED[name])

    def write(self, text: str) -> None:
        if self._in_title:
            self._title.append(text)
            return
        if self._preformatted and not self._cells:
            words = text
        else:
            text = _SPACES.sub(" ", text)
            words = text.strip(" ")
            self._space = self._space or text.startswith(" ")
        if not words:
            return
        if self._line_ends:
            self._parts.append("\n" * self._line_ends if self._parts else "")
        elif self._space and self._parts:
            self._parts.append(" ")
        self._parts.append(self._mark + words)
        self._line_ends, self._mark, self._space = 0, "", text.endswith(" ")

    def _part(self, line_ends: int) -> None:
        if self._cells:
            self._space = True  # a cell stays on its row's line
        elif not self._mark:  # <li><p>text: the mark waits for the text
            self._line_ends = max(self._line_ends, 1 if self._lists else line_ends)

    def text(self) -> str:
        return "".join(self._parts).strip("\n")

    def title(self) -> str | None:
        return _SPACES.sub(" ", html.unescape("".join(self._title))).strip() or None
