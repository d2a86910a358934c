"""What a stored error message may hold: text of any origin, and no secret."""

import re
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, text

from domain.failures import MAX_MESSAGE_BYTES, clean_error_message

SECRETS = ("sk-proj-4f9a2b7c", "p@ss/wörd!", "****", "비밀번호1234", "key with space", "ab\x00cd")

# Pieces that a message is really made of, and that meet each other in the worst places.
PIECES = st.sampled_from(
    [
        "Authorization: ",
        "authorization=",
        "{'Authorization': '",
        '"authorization": "',
        '\\"Authorization\\": \\"',
        "Bearer ",
        "bearer ",
        "Basic ",
        "Digest ",
        "https://",
        "postgresql://user:",
        "@host/path",
        "?X-Amz-Signature=",
        "&sig=",
        "\\u0026sig=",
        "sk-proj-4f9a",
        "2b7c",
        *SECRETS,
        "***",
        "*",
        "\x00",
        "\ud800",
        "\x1b[31m",
        "\r\n",
        "\x0b",
        "\u3000",
        "'",
        '"',
        "\\",
        " ",
        ", ",
        "\n",
        "가나다",
        "…",
        " … ",
        "x" * 2000,
        "한" * 1400,
    ]
)
MESSAGES = st.one_of(
    st.text(st.characters(exclude_categories=()), max_size=200),
    st.lists(st.one_of(PIECES, st.text(st.characters(exclude_categories=()), max_size=5)), max_size=25).map("".join),
)


@given(MESSAGES, st.text(st.characters(exclude_categories=()), max_size=20))
@example("", "")
@example("\u3000 \x1f", "\x00")
@example("https://user:pa\x0bss@host", "TimeoutError")
@example("한" * 2730 + "é" + "한" * 2730, "ValueError")
@example("x" * 4000 + "Authorization: a" * 400, "ValueError")
@settings(max_examples=200, deadline=None)
def test_a_cleaned_message_stays_as_it_is_when_it_is_cleaned_again(message: str, fallback: str) -> None:
    cleaned = clean_error_message(message, fallback, SECRETS)
    assert clean_error_message(cleaned, "another fallback", SECRETS) == cleaned


@given(MESSAGES, st.text(max_size=20))
@settings(max_examples=150, deadline=None)
def test_a_cleaned_message_is_short_visible_and_free_of_control_characters(message: str, fallback: str) -> None:
    cleaned = clean_error_message(message, fallback, SECRETS)
    assert len(cleaned.encode()) <= MAX_MESSAGE_BYTES
    assert cleaned.strip() == cleaned != ""
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]", cleaned)


@given(MESSAGES)
@settings(max_examples=150, deadline=None)
def test_no_secret_setting_is_left_in_a_cleaned_message(message: str) -> None:
    cleaned = clean_error_message(message, secrets=SECRETS)
    assert not [secret for secret in SECRETS if secret in cleaned]


@given(
    st.text(st.characters(exclude_categories=["Cc", "Cs", "Zs", "Zl", "Zp"]), min_size=1000, max_size=1000),
    st.integers(9000, 20000),
    st.text(st.characters(exclude_categories=["Cc", "Cs", "Zs", "Zl", "Zp"]), min_size=1000, max_size=1000),
)
@settings(max_examples=50, deadline=None)
def test_a_message_that_is_too_long_keeps_its_head_and_its_tail(head: str, between: int, tail: str) -> None:
    cleaned = clean_error_message(head + "-" * between + tail)
    assert cleaned.startswith(clean_error_message(head))
    assert cleaned.endswith(clean_error_message(tail))
    assert "---- … ----" in cleaned


def test_a_message_of_exactly_eight_kib_is_kept_whole() -> None:
    assert clean_error_message("x" * MAX_MESSAGE_BYTES) == "x" * MAX_MESSAGE_BYTES
    assert len(clean_error_message("x" * (MAX_MESSAGE_BYTES + 1)).encode()) <= MAX_MESSAGE_BYTES


@pytest.mark.parametrize("blank", ["", " ", "\n\t", "\u3000\u2003"])
def test_an_empty_message_becomes_the_class_of_its_exception(blank: str) -> None:
    assert clean_error_message(blank, "TimeoutError") == "TimeoutError"


def test_a_message_without_any_text_says_so() -> None:
    assert clean_error_message("", " ") == "no message"


def test_control_characters_are_replaced_and_lines_are_kept() -> None:
    assert clean_error_message("a\x00b\ud800c\x1b[0m\td\ne") == "a\ufffdb\ufffdc\ufffd[0m\td\ne"


HIDDEN = "h1ddenV4lue"


@pytest.mark.parametrize(
    "message",
    [
        # Authorization, as a header, as a setting, as repr and JSON show it, with every scheme.
        f"Authorization: Bearer {HIDDEN}",
        f"authorization={HIDDEN}",
        f"Authorization: Basic {HIDDEN}==",
        f"Authorization: Negotiate {HIDDEN}",
        f"Authorization:\n  Bearer {HIDDEN}",
        f"Proxy-Authorization: ApiKey {HIDDEN}",
        f'Authorization: Digest username="kim", nonce="n", response="{HIDDEN}"',
        f"Authorization: AWS4-HMAC-SHA256 Credential=A/2026, SignedHeaders=host, Signature={HIDDEN}",
        f"{{'Authorization': 'Bearer {HIDDEN}', 'Accept': '*/*'}}",
        f'{{"authorization": "Bearer {HIDDEN}"}}',
        f'{{\\"authorization\\": \\"Bearer {HIDDEN}\\"}}',
        f'{{"authorization": "Digest username=\\"kim\\", response=\\"{HIDDEN}\\""}}',
        f"[(b'Authorization', b'Bearer {HIDDEN}')]",
        f"curl -H 'Authorization: Bearer {HIDDEN}' https://host",
        f"rejected Bearer {HIDDEN}",
        # User info of URLs.
        f"https://kim:{HIDDEN}@host/path",
        f"could not connect to postgresql+psycopg://holdfast:{HIDDEN}@127.0.0.1:5432/holdfast",
        f"redis://:{HIDDEN}@host",
        f"https://{HIDDEN}@host",
        f"https://kim:p@{HIDDEN}@host",
        f"https://ki'm:{HIDDEN}@host",
        f"https:\\/\\/kim:{HIDDEN}@host",
        f"1https://kim:{HIDDEN}@host",
        f"https://kim:\x0b{HIDDEN}@host",
        # Signed query strings.
        f"https://bucket.s3.amazonaws.com/k?X-Amz-Credential=a&X-Amz-Signature={HIDDEN}&x=1",
        f"https://storage.googleapis.com/k?GoogleAccessId=a&Signature={HIDDEN}",
        f"https://account.blob.core.windows.net/k?sv=2024&se=2026&sig={HIDDEN}",
        f"https://cdn/k?Policy=p&Signature={HIDDEN}&Key-Pair-Id=K",
        f"https://host/k?a=1&amp;sig={HIDDEN}",
        f'{{"url":"https://host/k?a=1\\u0026X-Amz-Signature={HIDDEN}"}}',
        f"https://host/k?access_token={HIDDEN}#x",
        f"https://host/k?api_key={HIDDEN}",
    ],
)
def test_a_credential_is_hidden_wherever_libraries_print_it(message: str) -> None:
    cleaned = clean_error_message(message)
    assert HIDDEN not in cleaned
    assert "***" in cleaned


def test_what_is_not_secret_around_a_credential_is_kept() -> None:
    assert clean_error_message("GET https://kim:pw@host/a/b?x=1&sig=abc&y=2 answered 403") == (
        "GET https://***@host/a/b?x=1&sig=***&y=2 answered 403"
    )
    assert clean_error_message("{'Authorization': 'Bearer abc', 'Accept': 'text/html'}: 401") == (
        "{'Authorization': '***', 'Accept': 'text/html'}: 401"
    )
    assert (
        clean_error_message("sent\nAuthorization: Bearer abc\nAccept: */*") == "sent\nAuthorization: ***\nAccept: */*"
    )


@pytest.mark.parametrize(
    "message",
    [
        "authorization failed: the key is not allowed to use model text-embedding-3",
        "429 from https://api.example.com/v1/embeddings?model=e5: slow down",
        "kim@example.com has no access to https://host/path@2",
        "ratio 3:4 // a comment",
        "%s %(x)s {} {0} \\x00 'quoted' \"double\"",
    ],
)
def test_a_message_without_a_credential_is_kept_as_it_is(message: str) -> None:
    assert clean_error_message(message) == message


def test_a_secret_setting_is_hidden_also_percent_encoded_and_across_a_control_character() -> None:
    cleaned = clean_error_message("p@ss/wörd! p%40ss%2Fw%C3%B6rd%21 ab\x00cd", secrets=SECRETS)
    assert cleaned == "*** *** ***"


def test_a_secret_of_less_than_four_characters_garbles_no_message() -> None:
    assert clean_error_message("an error", secrets=["a", "", "err"]) == "an error"


@pytest.mark.parametrize(
    "huge",
    [
        "a" * 5_000_000,
        "a." * 500_000,
        "://" * 300_000,
        "://a" * 300_000,
        "authorization" * 100_000,
        "authorization: " * 100_000,
        "bearer " * 100_000,
        "&sig" * 200_000,
        "\\" * 1_000_000,
        "authorization" + "\\" * 1_000_000,
        "authorization" + " " * 1_000_000,
        "authorization='" + "\\'" * 500_000,
        "\x00" * 1_000_000,
        "*" * 1_000_000,
    ],
    ids=lambda huge: repr(huge[:16]),
)
def test_megabytes_of_any_kind_are_cleaned_in_seconds(huge: str) -> None:
    began = time.process_time()
    assert len(clean_error_message(huge, secrets=SECRETS).encode()) <= MAX_MESSAGE_BYTES
    assert time.process_time() - began < 5


def test_every_character_that_cleaning_leaves_can_be_stored(connection: Connection) -> None:
    for start in range(0, 0x110000, 0x4000):
        every = "".join(map(chr, range(start, start + 0x4000)))
        cleaned = "".join(clean_error_message(every[i : i + 1024]) for i in range(0, len(every), 1024))
        assert connection.execute(text("SELECT cast(:cleaned AS text)"), {"cleaned": cleaned}).scalar_one() == cleaned


def test_what_cleaning_leaves_is_not_blank_to_the_database_either(connection: Connection) -> None:
    """Which characters are white space is the database's own judgement, and depends on its locale."""
    blank = connection.execute(
        text(
            "SELECT array_agg(i) FROM generate_series(1, 1114111) AS i "
            "WHERE i NOT BETWEEN 55296 AND 57343 AND chr(i) !~ '\\S'"
        )
    ).scalar_one()
    assert {clean_error_message(chr(code), "TimeoutError") for code in blank} <= {"TimeoutError", "\ufffd"}
