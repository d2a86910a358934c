"""Text to the passages that are embedded and found."""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from semantic_text_splitter import MarkdownSplitter, TextSplitter

from . import media_type as kind
from .blank import is_blank
from .invalid import Reason, content_invalid

# Small passages suit the default model: of 300, 500, 800 and 1,600 characters, 300 found most (recall at 5 on
# 120 Korean and English questions: 0.88, 0.84, 0.87, 0.83).
MAX_CHUNK_CHARACTERS = 300

# The splitter takes time quadratic in what it is given (1 MB in one line: 82 s); in windows it is linear.
_WINDOW = 8_000

_MARKDOWN_LIKE = frozenset({kind.MARKDOWN, kind.HTML, kind.DOCX, kind.ODT, kind.EPUB, kind.XLSX})


@dataclass(frozen=True, slots=True)
class Chunk:
    """A passage: ``text == whole[char_start:char_end]``, never blank.

    ``page_no``: from 1, the page on which it begins; None in a document without pages.
    ``token_count``: about as many as any provider's tokenizer makes of it, rather more than fewer.
    """

    text: str
    char_start: int
    char_end: int
    page_no: int | None
    token_count: int


def chunk(text: str, page_starts: Sequence[int], media_type: str, max_chunks: int) -> list[Chunk]:
    """Cut a text, as ``parse`` returns it, into passages of at most 300 characters.

    The cuts fall between headings, paragraphs, sentences or words, whichever is the largest that fits.

    Raises:
        StageFailed: TOO_MANY_CHUNKS, found out before they are built; NO_TEXT.
    """
    visible = len(re.sub(r"\s+", "", text))
    fewest = -(-visible // MAX_CHUNK_CHARACTERS)
    if fewest > max_chunks:
        raise _too_many(f"at least {fewest:,}", len(text), max_chunks)
    chunks: list[Chunk] = []
    markdown = media_type in _MARKDOWN_LIKE
    passages = _passages(text, markdown)
    for start, passage in _under_headings(text, passages) if markdown else passages:
        if len(chunks) == max_chunks:
            raise _too_many(f"more than {max_chunks:,}", len(text), max_chunks)
        page_no = bisect_right(page_starts, start) if page_starts else None
        chunks.append(Chunk(passage, start, start + len(passage), page_no, count_tokens(passage)))
    if not chunks:
        raise content_invalid(Reason.NO_TEXT, "there is no text in the document")
    return chunks


def _passages(text: str, markdown: bool) -> Iterator[tuple[int, str]]:
    splitter = (MarkdownSplitter if markdown else TextSplitter)(MAX_CHUNK_CHARACTERS)
    for start, end in _windows(text, markdown):
        for offset, passage in splitter.chunk_indices(text[start:end]):
            if not is_blank(passage):
                yield start + offset, passage


_LONGEST_HEADING = MAX_CHUNK_CHARACTERS // 2
_ONLY_HEADINGS = re.compile(r"\s*(?:#{1,6}[ \t][^\n]*(?:\n\s*|\Z))+")


def _under_headings(text: str, passages: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Join a passage of headings alone with what it heads: alone it would be found, above its own section."""
    heading: tuple[int, int] | None = None  # where the headings that wait for their text begin and end
    for start, passage in passages:
        end = start + len(passage)
        first = heading[0] if heading else start
        if _ONLY_HEADINGS.fullmatch(passage) and end - first <= _LONGEST_HEADING:
            heading = (first, end)
            continue
        if heading and start - first > _LONGEST_HEADING:  # too much empty space between them
            yield first, text[first : heading[1]]
            heading = None
        if heading is None:
            yield start, passage
            continue
        room = MAX_CHUNK_CHARACTERS - (start - first)
        pieces = [piece for piece in TextSplitter(room).chunk_indices(passage) if not is_blank(piece[1])]
        lead = text[first : start + pieces[0][0]]
        if len(lead) + len(pieces[0][1]) <= MAX_CHUNK_CHARACTERS:
            yield first, lead + pieces[0][1]
        else:  # what is invisible stands between them
            yield first, text[first : heading[1]]
            yield start + pieces[0][0], pieces[0][1]
        yield from ((start + offset, piece) for offset, piece in pieces[1:])
        heading = None
    if heading:
        yield heading[0], text[heading[0] : heading[1]]


# Where a window may end, the best first: before a heading, after a paragraph, a line, a sentence, a word.
_ENDS = [re.compile(pattern) for pattern in (r"\n(?=#)", r"\n\s*\n", r"\n", r"[.!?。！？]\s", r"\s")]


def _windows(text: str, markdown: bool) -> Iterator[tuple[int, int]]:
    start = 0
    while len(text) - start > _WINDOW:
        end = start + _WINDOW
        for ending in _ENDS if markdown else _ENDS[1:]:
            found = [match.end() for match in ending.finditer(text, start + _WINDOW // 2, end)]
            if found:
                end = found[-1]
                break
        yield start, end
        start = end
    yield start, len(text)


_PIECES = re.compile(r"[A-Za-z]+|[0-9]+|[^\sA-Za-z0-9]")


def count_tokens(text: str) -> int:
    """A cautious count: one token for 4 Latin letters of a word, for 3 digits, for any other character.

    So one for each Hangul syllable, kanji or hanzi; two for a character beyond the basic plane, as emoji are.
    """
    count = 0
    for piece in _PIECES.findall(text):
        if piece.isascii():
            count += -(-len(piece) // (3 if piece[0].isdigit() else 4))
        else:
            count += 2 if piece > "\uffff" else 1
    return count


def _too_many(chunks: str, characters: int, max_chunks: int) -> Exception:
    return content_invalid(
        Reason.TOO_MANY_CHUNKS,
        f"the document has {characters:,} characters and would become {chunks} chunks; {max_chunks:,} are allowed "
        "(MAX_CHUNKS): split it",
    )
