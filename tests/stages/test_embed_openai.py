"""The provider openai against a server that speaks its protocol, rightly and wrongly."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from domain.failures import FailureType
from stages.embed import Embedder, open_embedder
from stages.embed_openai import retry_after

from .conftest import Answer, Server, free_port, refused

KEY = "sk-very-secret-key"
UNAVAILABLE, INVALID = FailureType.EMBEDDING_PROVIDER_UNAVAILABLE, FailureType.EMBEDDING_RESULT_INVALID


def embedder(server: Server, model: str = "m", timeout_seconds: float = 10.0) -> Embedder:
    return open_embedder("openai", model, 3, f"{server.url}/v1", KEY, timeout_seconds)


def vector_of(text: str) -> list[float]:
    return [1.0, float(len(text)), 0.0]


def answered(body: bytes) -> Answer:
    texts = json.loads(body)["input"]
    data = [{"object": "embedding", "index": i, "embedding": vector_of(text)} for i, text in enumerate(texts)]
    return as_json({"object": "list", "data": data, "model": "m"})


def as_json(value: Any, status: int = 200, **headers: str) -> Answer:
    return Answer(status, json.dumps(value).encode(), {"Content-Type": "application/json", **headers})


def failing(status: int, code: str | None = None, **headers: str) -> Answer:
    return as_json({"error": {"message": f"sorry, {KEY}", "type": "t", "code": code}}, status, **headers)


def test_a_request_asks_for_numbers_and_carries_the_key(server: Server) -> None:
    server.answer = answered
    vectors = embedder(server).embed_passages(["가", "나다", "라마바"])
    assert [round(float(row[1] / row[0])) for row in vectors] == [1, 2, 3]
    assert json.loads(server.requests[0]) == {
        "model": "m",
        "input": ["가", "나다", "라마바"],
        "encoding_format": "float",
    }
    assert server.authorizations == [f"Bearer {KEY}"]
    assert embedder(server).embed_query("질문").shape == (3,)


def test_only_the_family_that_knows_the_parameter_is_asked_for_dimensions(server: Server) -> None:
    server.answer = answered
    embedder(server, "text-embedding-3-large").embed_passages(["가"])
    assert json.loads(server.requests[0])["dimensions"] == 3


def test_a_server_of_ones_own_needs_no_key(server: Server) -> None:
    server.answer = answered
    open_embedder("openai", "m", 3, server.url).embed_passages(["가"])
    assert len(server.requests) == 1


def test_vectors_that_come_in_another_order_are_put_in_order(server: Server) -> None:
    def reversed_(body: bytes) -> Answer:
        value = json.loads(answered(body).body)
        return as_json({**value, "data": value["data"][::-1]})

    server.answer = reversed_
    vectors = embedder(server).embed_passages(["가", "나다", "라마바"])
    assert [round(float(row[1] / row[0])) for row in vectors] == [1, 2, 3]


@pytest.mark.parametrize(
    ("answer", "type_", "reason"),
    [
        (failing(400), INVALID, "INPUT_REFUSED"),
        (failing(422), INVALID, "INPUT_REFUSED"),
        (failing(413), INVALID, "INPUT_REFUSED"),
        (failing(401), UNAVAILABLE, "PROVIDER_AUTH"),
        (failing(403), UNAVAILABLE, "PROVIDER_AUTH"),
        (failing(404), UNAVAILABLE, "PROVIDER_NOT_FOUND"),
        (failing(405), UNAVAILABLE, "PROVIDER_NOT_FOUND"),
        (failing(402), UNAVAILABLE, "QUOTA_EXHAUSTED"),
        (failing(408), UNAVAILABLE, None),
        (failing(409), UNAVAILABLE, None),
        (failing(425), UNAVAILABLE, None),
        (failing(429), UNAVAILABLE, "RATE_LIMITED"),
        (failing(429, code="insufficient_quota"), UNAVAILABLE, "QUOTA_EXHAUSTED"),
        (failing(500), UNAVAILABLE, None),
        (failing(502), UNAVAILABLE, None),
        (failing(503), UNAVAILABLE, None),
        (Answer(504, b"<html>Gateway Timeout</html>"), UNAVAILABLE, None),
        (Answer(529, b""), UNAVAILABLE, None),
    ],
    ids=lambda value: str(value.status) if isinstance(value, Answer) else None,
)
def test_each_refusal_has_its_failure(server: Server, answer: Answer, type_: FailureType, reason: str | None) -> None:
    server.answer = lambda _: answer
    with refused(type_, reason) as caught:
        embedder(server).embed_passages(["가"])
    message = caught[0].message
    assert f"answered {answer.status}" in message
    assert server.url.removeprefix("http://") in message
    assert "openai:m" in message
    assert KEY not in message
    assert len(server.requests) == 1, "the SDK must not retry by itself"


@pytest.mark.parametrize(
    ("body", "type_", "said"),
    [
        (b"", UNAVAILABLE, "not JSON"),
        (b'{"data": [{"index": 0, "embe', UNAVAILABLE, "not JSON"),
        (b"<html>log in first</html>", UNAVAILABLE, "not JSON"),
        (b'{"error": {"message": "overloaded"}}', UNAVAILABLE, "overloaded"),
        (b"null", INVALID, "without a list"),
        (b"[]", INVALID, "without a list"),
        (b"{}", INVALID, "without a list"),
        (b'{"data": null}', INVALID, "without a list"),
        (b'{"data": [1]}', INVALID, "without a list"),
        (b'{"data": []}', INVALID, "0 vectors for 1 texts"),
        (
            b'{"data": [{"index": 0, "embedding": [1, 2, 3]}, {"index": 1, "embedding": [1, 2, 3]}]}',
            INVALID,
            "2 vectors",
        ),
        (b'{"data": [{"index": 1, "embedding": [1, 2, 3]}]}', INVALID, "indexes"),
        (b'{"data": [{"index": null, "embedding": [1, 2, 3]}]}', INVALID, "indexes"),
        (b'{"data": [{"index": "0", "embedding": [1, 2, 3]}]}', INVALID, "indexes"),
        (b'{"data": [{"embedding": [1, 2, 3]}]}', INVALID, "indexes"),
        (b'{"data": [{"index": 0}]}', INVALID, "vector 1 of 1"),
        (b'{"data": [{"index": 0, "embedding": null}]}', INVALID, "vector 1 of 1"),
        (b'{"data": [{"index": 0, "embedding": "AACAPwAAAAAAAAAA"}]}', INVALID, "vector 1 of 1"),
        (b'{"data": [{"index": 0, "embedding": [1, 2]}]}', INVALID, "2 dimensions where 3 are configured"),
        (b'{"data": [{"index": 0, "embedding": [1, NaN, 3]}]}', INVALID, "NaN"),
        (b'{"data": [{"index": 0, "embedding": [1, Infinity, 3]}]}', INVALID, "infinity"),
        (b'{"data": [{"index": 0, "embedding": [1, 1e999, 3]}]}', INVALID, "infinity"),
        (b'{"data": [{"index": 0, "embedding": [0, 0.0, 0]}]}', INVALID, "all zeros"),
    ],
)
def test_a_success_is_believed_only_when_its_content_is_right(
    server: Server, body: bytes, type_: FailureType, said: str
) -> None:
    server.answer = lambda _: Answer(200, body, {"Content-Type": "application/json"})
    with refused(type_) as caught:
        embedder(server).embed_passages(["가"])
    assert said in caught[0].message


def test_a_request_that_is_too_large_is_halved_until_it_fits(server: Server) -> None:
    def at_most_two(body: bytes) -> Answer:
        return answered(body) if len(json.loads(body)["input"]) <= 2 else failing(413)

    server.answer = at_most_two
    texts = ["가" * length for length in range(1, 8)]
    vectors = embedder(server).embed_passages(texts)
    assert [round(float(row[1] / row[0])) for row in vectors] == [1, 2, 3, 4, 5, 6, 7]
    assert [len(json.loads(body)["input"]) for body in server.requests] == [7, 3, 1, 2, 4, 2, 2]


def test_one_text_that_is_too_large_is_refused_for_good(server: Server) -> None:
    server.answer = lambda body: failing(413) if "너무 긴" in json.loads(body)["input"] else answered(body)
    with refused(INVALID, "INPUT_REFUSED"):
        embedder(server).embed_passages(["하나", "둘", "너무 긴"])


def test_a_provider_that_does_not_answer_in_time_is_unavailable(server: Server) -> None:
    server.answer = lambda _: Answer(wait_seconds=30)
    with refused(UNAVAILABLE) as caught:
        embedder(server, timeout_seconds=0.3).embed_passages(["가"])
    assert "no answer within 0.3 s" in caught[0].message
    assert len(server.requests) == 1


def test_a_provider_that_is_not_there_is_unavailable() -> None:
    port = free_port()
    with refused(UNAVAILABLE) as caught:
        open_embedder("openai", "m", 3, f"http://user:{KEY}@127.0.0.1:{port}/v1", KEY).embed_passages(["가"])
    assert f"127.0.0.1:{port}" in caught[0].message
    assert KEY not in caught[0].message


def test_an_answer_that_breaks_off_is_unavailable(server: Server) -> None:
    server.answer = lambda body: Answer(200, b'{"data": [', announced_length=1000)
    with refused(UNAVAILABLE):
        embedder(server).embed_passages(["가"])


NOW = datetime(2025, 9, 1, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"retry-after": "20"}, timedelta(seconds=20)),
        ({"retry-after": " 1.5 "}, timedelta(seconds=1.5)),
        ({"retry-after": "0"}, timedelta()),
        ({"retry-after": "-5"}, timedelta()),
        ({"retry-after": "Mon, 01 Sep 2025 12:00:30 GMT"}, timedelta(seconds=30)),
        ({"retry-after": "Mon, 01 Sep 2025 11:00:00 GMT"}, timedelta()),
        (
            {"retry-after": "Mon, 01 Sep 2025 13:00:30 GMT", "date": "Mon, 01 Sep 2025 13:00:00 GMT"},
            timedelta(seconds=30),
        ),
        ({"retry-after": "1e99"}, None),
        ({"retry-after": "999999999"}, timedelta(days=1)),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({}, None),
    ],
)
def test_the_provider_says_how_long_to_wait_in_seconds_or_as_a_date(
    headers: dict[str, str], wait: timedelta | None
) -> None:
    assert retry_after(headers, NOW) == wait


@pytest.mark.parametrize("status", [429, 503])
def test_the_wait_that_the_provider_asks_for_travels_with_the_failure(server: Server, status: int) -> None:
    server.answer = lambda _: failing(status, **{"Retry-After": "7"})
    with refused(UNAVAILABLE, "RATE_LIMITED" if status == 429 else None) as caught:
        embedder(server).embed_passages(["가"])
    assert caught[0].retry_after == timedelta(seconds=7)


def test_the_environment_of_the_sdk_changes_nothing(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "another")
    monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{free_port()}")
    server.answer = answered
    embedder(server).embed_passages(["가"])
    assert server.authorizations == [f"Bearer {KEY}"]
