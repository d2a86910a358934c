"""The sample documents: what the script writes, each read by its format, and found by a question."""

import numpy as np
import pytest

from stages.chunk import chunk
from stages.embed import open_embedder
from stages.parse import parse

from .conftest import invalid
from .make_samples import FOLDER, documents

SAMPLES = documents()
READABLE = {name: content for name, content in SAMPLES.items() if not name.startswith("broken/")}


@pytest.mark.parametrize("name", SAMPLES)
def test_the_files_are_what_the_script_writes(name: str) -> None:
    assert (FOLDER / name).read_bytes() == SAMPLES[name], "run python -m tests.stages.make_samples"


def test_every_format_is_among_them_and_is_read_as_itself() -> None:
    types = {parse(content, name).media_type.rpartition(".")[2] for name, content in READABLE.items()}
    assert types == {
        "document",
        "presentation",
        "sheet",
        "application/pdf",
        "application/x-hwp",
        "application/hwp+zip",
        "text",
        "application/rtf",
        "application/epub+zip",
        "text/html",
        "message/rfc822",
        "text/markdown",
        "text/csv",
        "text/plain",
    }


def test_the_broken_ones_fail_for_good() -> None:
    with invalid("CORRUPT"):
        parse(SAMPLES["broken/cut-short.pdf"], "cut-short.pdf")
    with invalid("PASSWORD_REQUIRED"):
        parse(SAMPLES["broken/password-protected.pdf"], "password-protected.pdf")


QUESTIONS = {
    "환불은 언제까지 신청할 수 있나요?": ("환불-규정.docx", "7일까지"),
    "How do I restore the database from a backup?": ("operations-runbook.md", "restorectl"),
    "연차 휴가는 며칠인가요?": ("연차-휴가-규정.hwp", "15일"),
    "When do we have to notify regulators about a data breach?": ("security-incident-policy.pdf", "72 hours"),
    "집에서 일할 때 VPN을 써야 하나요?": ("재택근무-지침.hwpx", "VPN"),
    "How much is reimbursed for meals?": ("employee-handbook.epub", "45 euros"),
    "제주도는 배송이 얼마나 걸리나요?": ("배송-안내.odt", "제주"),
    "학생 할인은 몇 퍼센트인가요?": ("요금표.xlsx", "학생 | 50%"),
}


def test_questions_in_both_languages_find_the_passage_that_answers_them() -> None:
    embedder = open_embedder("local")
    places, texts = [], []
    for name, content in READABLE.items():
        found = parse(content, name)
        for one in chunk(found.text, found.page_starts, found.media_type, 1000):
            places.append(name)
            texts.append(one.text)
    vectors = embedder.embed_passages(texts)
    missed = []
    for question, (name, words) in QUESTIONS.items():
        best = np.argsort(-(vectors @ embedder.embed_query(question)))[:2]  # of what a search of two shows
        if not any(places[index] == name and words in texts[index] for index in best):
            missed.append((question, [(places[index], texts[index][:80]) for index in best]))
    assert missed == []
