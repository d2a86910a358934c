import pytest

from stages.charset import BROKEN_SHARE, decode

from .conftest import invalid

KOREAN = [
    "환불",
    "네",
    "한국어",
    "환불 안내",
    "안녕하세요",
    "회의록",
    "Hello 세계",
    "ㅋㅋㅋ",
    "ㅠㅠ 힘들어요",
    "이름,금액\n김철수,9900\n",
    "①첫째 ②둘째",
    "값 3㎏ 5℃",
    "「인용」 본문 · 항목",
    "大韓民國 헌법",
    "☎ 02-123-4567 문의",
    "휴가 규정 제1조(목적)",
    "환불은 구매 후 7일 안에 신청할 수 있습니다.",
    "웹사이트 접속이 안 됩니다",
    "삶과 값, 닭과 흙",
]
JAPANESE = [
    "返金",
    "東京都",
    "日本語",
    "こんにちは",
    "カタカナ",
    "テスト",
    "会議録",
    "株式会社",
    "表示ソフト能力",  # second bytes that are a backslash
    "名前,金額\n田中,9900\n",
    "「引用」本文",
    "返金は七日以内に申請できます。",
    "Hello 世界",
    "渋谷区神南一丁目",
]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32", "cp949", "euc_kr"])
@pytest.mark.parametrize("text", KOREAN)
def test_a_short_korean_text_comes_out_right(text: str, encoding: str) -> None:
    assert decode(text.encode(encoding)).text == text


@pytest.mark.parametrize("text", ["똠방각하", "펲시콜라", "쓩쓩 날아라 뽀로로", "믜 이름은 뷔"])
def test_syllables_that_only_cp949_has_come_out_right(text: str) -> None:
    assert decode(text.encode("cp949")).text == text


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "shift_jis", "cp932", "iso2022_jp"])
@pytest.mark.parametrize("text", JAPANESE)
def test_a_short_japanese_text_comes_out_right(text: str, encoding: str) -> None:
    assert decode(text.encode(encoding)).text == text


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("text", [*KOREAN, *JAPANESE, "plain English"])
def test_utf_16_without_its_mark_is_recognised_by_the_zeros_of_its_spaces(text: str, encoding: str) -> None:
    if not any(character.isascii() for character in text) or text == "ㅋㅋㅋ":
        text += " 2025 \n"
    assert decode(text.encode(encoding)).text == text


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("Müller aß Äpfel für 5 €.", "cp1252"),
        ("Le déjeuner à la plage où l’on va", "cp1252"),
        ("El niño está aquí", "cp1252"),
        ("Возврат возможен в течение семи дней", "cp1251"),
        ("Возврат возможен в течение семи дней", "koi8_r"),
        ("返金は商品の到着後七日以内に申請できます。", "euc_jp"),
        ("購買後七天內可以申請退款。", "big5"),
        ("退款政策：收到商品后可以申请退款。", "gb18030"),
    ],
)
def test_other_encodings_are_recognised_too(text: str, encoding: str) -> None:
    assert decode(text.encode(encoding)).text == text


def test_long_korean_texts_are_read_without_slowing_down() -> None:
    text = "환불은 구매 후 7일 안에 신청할 수 있습니다. R&D 담당자에게 문의하세요.\n" * 100_000
    assert decode(text.encode("cp949")).text == text


def test_a_declared_encoding_is_believed_where_the_content_allows_it() -> None:
    assert decode("ㄱ".encode("euc_kr"), "EUC-KR").text == "ㄱ"
    assert decode("환불".encode(), "euc-kr").text == "환불"
    assert decode("환불 안내".encode("cp949"), "utf-8").text == "환불 안내"
    assert decode("환불 안내".encode("cp949"), "no-such-encoding").text == "환불 안내"
    assert decode("환불 안내".encode("cp949"), "base64").text == "환불 안내"


@pytest.mark.parametrize("encoding", ["utf-8", "cp949"])
def test_one_broken_byte_does_not_cost_a_long_text(encoding: str) -> None:
    line = "환불은 구매 후 7일 안에 신청할 수 있습니다.\n".encode(encoding)
    decoded = decode(line * 100 + b"\xff" + line * 100)
    assert decoded.encoding == encoding
    assert 1 <= decoded.broken <= 2 <= len(decoded.text) * BROKEN_SHARE
    assert decoded.text.count("7일 안에") == 200


@pytest.mark.parametrize(
    "content",
    [b"\xff\xfe\x00\xd8\x00\x00", b"\xef\xbb\xbf\xff", bytes(range(128, 256)) * 4, "환불".encode() + b"\xff"],
)
def test_what_no_encoding_fits_is_refused(content: bytes) -> None:
    with invalid("ENCODING_UNKNOWN") as caught:
        decode(content)
    assert "UTF-8" in caught[0].message


def test_what_is_no_text_is_refused_as_such() -> None:
    with invalid("UNSUPPORTED_TYPE"):
        decode(bytes(range(256)) * 10)


def test_zeros_left_behind_in_a_text_do_not_make_it_utf_16() -> None:
    assert decode(b"Refunds\0 within\0 seven days.\n" * 3).encoding == "utf-8"
