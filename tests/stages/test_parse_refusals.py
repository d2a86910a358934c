"""What cannot be indexed says why, and is never binary noise instead (B-70, B-71, B-73)."""

from pathlib import Path

import pytest

from stages.parse import parse

from .conftest import invalid
from .hwp_writer import compound_file, hwp
from .make_samples import rtf
from .office_writer import docx, epub, hwpx, odt, pptx, xlsx, zipped
from .pdf_writer import pdf, pdf_of_a_picture

FIXTURES = Path(__file__).parent / "fixtures"
SENTENCE = "환불은 7일 안에 신청합니다."
DOCX, PDF = docx([SENTENCE]), pdf([[SENTENCE]])


@pytest.mark.parametrize(
    ("content", "name", "media_type"),
    [
        (PDF, "a.txt", "application/pdf"),
        (PDF, "a", "application/pdf"),
        (b"\r\n" + PDF, "a.pdf", "application/pdf"),
        (b"junk of a mail gateway\n" + PDF, "a.pdf", "application/pdf"),
        (SENTENCE.encode(), "a.pdf", "text/plain"),
        (SENTENCE.encode(), "a.docx", "text/plain"),
        (SENTENCE.encode("cp949"), "a.hwp", "text/plain"),
        (b"The mark %PDF-1.7 begins a PDF.", "note", "text/plain"),
        (DOCX, "a.zip", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
        (DOCX, "a.pdf", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
        (xlsx({"a": [[SENTENCE]]}), "a.docx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
        (pptx([[SENTENCE]]), "a", "application/vnd.openxmlformats-officedocument.presentationml.presentation"),
        (odt([SENTENCE]), "a.doc", "application/vnd.oasis.opendocument.text"),
        (hwpx([SENTENCE]), "a.hwp", "application/hwp+zip"),
        (hwp([SENTENCE]), "a.hwpx", "application/x-hwp"),
        (epub({"1": SENTENCE}, "t"), "a.zip", "application/epub+zip"),
        (rtf([SENTENCE]), "a.doc", "application/rtf"),
        (f"<!-- x --><!DOCTYPE html><p>{SENTENCE}".encode(), "a.txt", "text/html"),
        (f"<p>{SENTENCE}".encode(), "https://host/page.html?x=1.txt", "text/html"),
        (f"From: a@b\nTo: c@d\n\n{SENTENCE}".encode(), "a.txt", "message/rfc822"),
        (f"Subject: 메모\nDate: 내일\n\n{SENTENCE}".encode(), "a.txt", "text/plain"),
        (f"<?xml version='1.0'?><a>{SENTENCE}</a>".encode(), "a.txt", "application/xml"),
    ],
)
def test_the_content_decides_how_a_document_is_read(content: bytes, name: str, media_type: str) -> None:
    found = parse(content, name)
    assert found.media_type == media_type
    assert SENTENCE in found.text or "%PDF-1.7" in found.text
    assert "\0" not in found.text
    assert "PK" not in found.text


def test_an_empty_file_is_empty() -> None:
    with invalid("EMPTY"):
        parse(b"", "a.pdf")


@pytest.mark.parametrize(
    "content",
    [b" \n\t\r\n", "\u3000\u200b\ufeff \u00a0".encode(), docx(["", " "]), hwpx([" "]), hwp([""]), xlsx({"a": []})],
)
def test_a_document_of_spaces_has_no_text(content: bytes) -> None:
    with invalid("NO_TEXT"):
        parse(content, "a")


def test_a_scanned_pdf_has_no_text_and_is_told_to_need_ocr() -> None:
    with invalid("NO_TEXT") as caught:
        parse(pdf_of_a_picture(), "scan.pdf")
    assert "OCR" in caught[0].message


MANIFEST = '<odf:file-entry odf:full-path="Contents/section0.xml"><odf:encryption-data/></odf:file-entry>'
LOCKED = '<manifest:file-entry manifest:full-path="content.xml"><manifest:encryption-data/></manifest:file-entry>'


@pytest.mark.parametrize(
    "content",
    [
        pdf([[SENTENCE]], user_password="secret"),
        (FIXTURES / "aes-256-user-password.pdf").read_bytes(),
        compound_file({"EncryptionInfo": bytes(100), "EncryptedPackage": bytes(5000)}),
        hwp([SENTENCE], flags=3),
        hwpx([SENTENCE], manifest=MANIFEST),
        odt([SENTENCE], manifest=LOCKED),
        epub({"1": "x"}, "t", {"META-INF/encryption.xml": "<e><r URI='OEBPS/text/c1.xhtml'/></e>"}),
    ],
    ids=["pdf rc4", "pdf aes-256", "office", "hwp", "hwpx", "odt", "epub"],
)
def test_what_needs_a_password_says_so(content: bytes) -> None:
    with invalid("PASSWORD_REQUIRED"):
        parse(content, "a")


def damaged(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes(byte ^ 0x55 for byte in content[middle : middle + 40]) + content[middle + 40 :]


@pytest.mark.parametrize(
    "content",
    [
        PDF[: len(PDF) // 2],
        (FIXTURES / "libreoffice.pdf").read_bytes()[:-400],
        b"%PDF-1.7\n" + b"garbage " * 200,
        DOCX[: len(DOCX) // 2],
        damaged(DOCX),
        damaged(xlsx({"a": [[SENTENCE] * 50]})),
        zipped({"[Content_Types].xml": "<Types/>", "word/document.xml": "<w:document><w:body>"}),
        zipped({"[Content_Types].xml": "<Types/>", "ppt/presentation.xml": "<p:presentation>"}),
        zipped({"mimetype": "application/vnd.oasis.opendocument.text", "content.xml": "<a><b></a>"}),
        zipped({"[Content_Types].xml": "<Types/>", "xl/workbook.xml": "<workbook/>"}),
        zipped({"mimetype": "application/hwp+zip", "Contents/section0.xml": "<hs:sec><hp:p>"}),
        zipped({"mimetype": "application/epub+zip", "META-INF/container.xml": "<container/>"}),
        hwp([SENTENCE])[:1400],
        hwp([SENTENCE], section=b"\xff" * 500),
        hwp([SENTENCE], flags=0, section=b"\x43\x04\xf0\xff\xff\xff\xff\x7f"),
        compound_file({"FileHeader": b"HWP Document File" + bytes(239)}),
        bytes.fromhex("D0CF11E0A1B11AE1") + bytes(600),
    ],
)
def test_a_damaged_document_is_corrupt(content: bytes) -> None:
    with invalid("CORRUPT"):
        parse(content, "a")


@pytest.mark.parametrize(
    ("content", "hint"),
    [
        (b"\x89PNG\r\n\x1a\n" + bytes(100), "OCR"),
        (b"\xff\xd8\xff\xe0" + bytes(100), "OCR"),
        (b"\x1f\x8b\x08" + bytes(100), "unpack"),
        (zipped({"a.txt": "text", "b.txt": "text"}), "unpack"),
        (b"\x7fELF" + bytes(100), "program"),
        (b"RIFF\x10\0\0\0WAVEfmt ", "sound"),
        (b"\0\0\0\x18ftypmp42" + bytes(100), "video"),
        (compound_file({"WordDocument": bytes(5000)}), "DOCX"),
        (compound_file({"Workbook": bytes(5000)}), "XLSX"),
        (compound_file({"PowerPoint Document": bytes(5000)}), "PPTX"),
        (compound_file({"__properties_version1.0": bytes(32)}), "EML"),
        (compound_file({"Anything": bytes(32)}), "unknown program"),
        (b"HWP Document File V3.00 \x1a\x01\x02\x03\x04\x05" + bytes(100), "HWP 5"),
        (hwp([SENTENCE], flags=5), "locked"),
        (zipped({"mimetype": "application/vnd.oasis.opendocument.spreadsheet", "content.xml": "<a/>"}), "PDF"),
        (bytes(range(256)) * 20, "neither"),
    ],
)
def test_what_is_not_read_here_is_named_with_a_way_out(content: bytes, hint: str) -> None:
    with invalid("UNSUPPORTED_TYPE") as caught:
        parse(content, "a.txt")
    assert hint in caught[0].message


def test_an_unknown_encoding_is_told() -> None:
    with invalid("ENCODING_UNKNOWN"):
        parse(bytes(range(160, 256)) * 5, "a.txt")


def test_a_doctype_in_an_office_document_is_not_opened() -> None:
    bomb = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]><w:document>&b;</w:document>'
    types = {"[Content_Types].xml": "<Types/>"}
    for entries in (
        {**types, "word/document.xml": bomb},
        {**types, "ppt/presentation.xml": bomb},
        {**types, "xl/workbook.xml": "<workbook/>", "xl/_rels/workbook.xml.rels": bomb},
        {"mimetype": "application/vnd.oasis.opendocument.text", "content.xml": bomb},
        {"mimetype": "application/hwp+zip", "Contents/section0.xml": bomb},
    ):
        with invalid("ARCHIVE_UNSAFE") as caught:
            parse(zipped(entries), "a")
        assert "DOCTYPE" in caught[0].message


def test_more_text_than_any_document_holds_is_refused_before_it_is_cleaned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stages.parse.MAX_TEXT_CHARACTERS", 1000)
    assert parse(b"word " * 200, "a.txt").text
    with invalid("TOO_LARGE") as failures:
        parse(b"word " * 201, "a.txt")
    assert "1,005 characters" in failures[0].message
