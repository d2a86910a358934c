import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.chunk import MAX_CHUNK_CHARACTERS, Chunk, chunk, count_tokens

from .conftest import invalid

PLAIN, MARKDOWN = "text/plain", "text/markdown"


def chunks_of(text: str, media_type: str = PLAIN, page_starts: tuple[int, ...] = (), most: int = 50_000) -> list[Chunk]:
    """The chunks, each checked against what holds for all of them."""
    chunks = chunk(text, page_starts, media_type, most)
    end = 0
    for one in chunks:
        assert text[one.char_start : one.char_end] == one.text
        assert one.text.strip()
        assert len(one.text) <= MAX_CHUNK_CHARACTERS
        assert one.char_start >= end
        assert one.token_count == count_tokens(one.text) > 0
        end = one.char_end
    return chunks


@settings(max_examples=200, deadline=None)
@given(
    st.text(st.sampled_from(list("가힣한 \n\n\t#*-|`>.!?aZ09é漢かＡ\u0301👍\u200b")), min_size=1, max_size=3000),
    st.sampled_from([PLAIN, MARKDOWN]),
)
def test_no_visible_character_is_lost_and_every_offset_is_exact(text: str, media_type: str) -> None:
    if not text.replace("\u200b", "").strip():
        with invalid("NO_TEXT"):
            chunk(text, (), media_type, 100)
        return
    covered = "".join(one.text for one in chunks_of(text, media_type))
    assert "".join(covered.replace("\u200b", "").split()) == "".join(text.replace("\u200b", "").split())


@pytest.mark.parametrize("media_type", [PLAIN, MARKDOWN])
@pytest.mark.parametrize(
    "text",
    ["환불은구매후칠일안에신청할수있습니다" * 55_556, "a" * 1_000_000, "hello world. " * 77_000, "한" * 1_000_000],
    ids=["korean", "letters", "words", "syllable"],
)
def test_a_megabyte_in_one_line_is_cut_under_the_cap(text: str, media_type: str) -> None:
    chunks = chunks_of(text, media_type)
    assert len(chunks) < len(text) / MAX_CHUNK_CHARACTERS * 1.1
    assert max(one.token_count for one in chunks) <= MAX_CHUNK_CHARACTERS


def test_a_heading_stays_with_its_text() -> None:
    section = "## {0}절\n\n환불은 구매 후 {0}일 안에 신청할 수 있습니다. 파손된 상품은 사진과 함께 접수합니다.\n\n"
    chunks = chunks_of("".join(section.format(number) for number in range(1, 400)), MARKDOWN)
    assert all(one.text.startswith("## ") for one in chunks)


def test_sentences_are_kept_whole_where_they_fit() -> None:
    chunks = chunks_of("환불은 구매 후 7일 안에 신청할 수 있습니다. " * 1000)
    assert all(one.text.startswith("환불은") and one.text.endswith("있습니다.") for one in chunks)


def test_the_page_is_the_one_on_which_a_chunk_begins() -> None:
    pages = ["가" * 400, "", "나" * 250, "다" * 700]
    text = "\n\n".join(pages)
    starts = (0, 402, 404, 656)
    found = {(one.text[0], one.page_no) for one in chunks_of(text, "application/pdf", starts)}
    assert found == {("가", 1), ("나", 3), ("다", 4)}


def test_a_document_without_pages_has_none() -> None:
    assert [one.page_no for one in chunks_of("본문")] == [None]


def test_too_many_chunks_are_refused_with_the_numbers_before_they_are_built() -> None:
    with invalid("TOO_MANY_CHUNKS") as caught:
        chunk("환불 " * 2_000_000, (), PLAIN, 1000)
    assert "at least 13,334 chunks" in caught[0].message
    assert "1,000 are allowed (MAX_CHUNKS)" in caught[0].message
    assert "6,000,000 characters" in caught[0].message


def test_many_small_chunks_are_counted_as_they_come() -> None:
    text = "# 제목\n\n본문\n\n" * 30
    fits = len(chunks_of(text, MARKDOWN))
    assert len(chunks_of(text, MARKDOWN, most=fits)) == fits
    with invalid("TOO_MANY_CHUNKS"):
        chunk("\n\n".join(f"# {number}\n\n" + "글" * 200 for number in range(30)), (), MARKDOWN, 25)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("환불 규정", 4),
        ("한국어문서", 5),
        ("refund", 2),
        ("a", 1),
        ("internationalization", 5),
        ("2025", 2),
        ("R&D", 3),
        ("返金は七日", 5),
        ("👍", 2),
        (" \n\t", 0),
        ("café", 2),
    ],
)
def test_tokens_are_counted_cautiously(text: str, tokens: int) -> None:
    assert count_tokens(text) == tokens


def test_a_heading_is_never_a_passage_of_its_own_while_it_heads_a_text() -> None:
    section = "A full backup of the database runs every Sunday. " * 6
    text = f"# Runbook\n\n## Backups\n\n{section}\n\n## 복구\n\n{section}\n\n## The end"
    passages = chunk(text, (), "text/markdown", 100)
    assert [passage.text.splitlines()[0] for passage in passages if passage.text.startswith("#")] == [
        "# Runbook",
        "## 복구",
        "## The end",
    ]
    assert passages[0].text.startswith("# Runbook\n\n## Backups\n\nA full backup")
    assert all(text[passage.char_start : passage.char_end] == passage.text for passage in passages)
    assert max(len(passage.text) for passage in passages) <= 300


@pytest.mark.parametrize("between", ["\n" * 400, "\n\u200b" * 400, "\n\n"])
def test_a_heading_far_from_its_text_stays_under_the_cap(between: str) -> None:
    text = (
        "# 먼 제목" + between + "환불은 구매 후 7일 안에 신청할 수 있습니다. " * 20 + between + "## 끝 제목" + between
    )
    chunks = chunks_of(text, MARKDOWN)
    assert chunks[0].text.startswith("# 먼 제목")
    assert "끝 제목" in chunks[-1].text
