"""Search, chat, files in process and failures, with the real offline model."""

import json
from typing import Any

import httpx
import pytest

from api.embedders import opened
from api.language import preferred
from domain.failures import FailureType
from tests.api.conftest import HttpWorker, Shared, code_of
from tests.domain.indexing import Indexing

QUESTION = "환불은 언제까지 신청할 수 있나요?"
REFUND = "환불은 구매한 날부터 14일 안에 신청할 수 있습니다."
BACKUP = "The database is restored from its nightly backup."


def index(user: httpx.Client, admin: httpx.Client, passages: list[str], name: str = "a.txt") -> int:
    """Upload a document and index it over HTTP, as a worker with the deployment's model does."""
    accepted = user.post("/documents", files={"file": (name, "".join(passages).encode())}).json()
    worker = HttpWorker(admin)
    claim = next(one for one in worker.claim(100) if one["jobId"] == accepted["jobId"])
    embedder = opened("local")
    vectors = embedder.embed_passages(passages).tolist()
    text = "".join(passages)
    worker.report(
        claim,
        "parsed",
        text=text,
        mediaType="text/plain",
        contentSha256=claim["contentSha256"],
        sizeBytes=claim["sizeBytes"],
    ).raise_for_status()
    chunks, start = [], 0
    for passage in passages:
        chunks.append(
            {"text": passage, "charStart": start, "charEnd": start + len(passage), "pageNo": 2, "tokenCount": 9}
        )
        start += len(passage)
    stored = worker.report(claim, "chunks", chunks=chunks).raise_for_status().json()["chunks"]
    embeddings = [{"chunkId": one["chunkId"], "vector": vector} for one, vector in zip(stored, vectors, strict=True)]
    worker.report(claim, "embeddings", embeddings=embeddings).raise_for_status()
    worker.report(claim, "complete").raise_for_status()
    return int(accepted["documentId"])


def test_a_search_finds_the_callers_passages_the_nearest_first(user: httpx.Client, shared_admin: httpx.Client) -> None:
    document_id = index(user, shared_admin, [REFUND, BACKUP])
    found = user.post("/search", json={"query": QUESTION, "limit": 5}).raise_for_status().json()
    assert [passage["text"] for passage in found["passages"]] == [REFUND, BACKUP]
    best = found["passages"][0]
    assert (best["documentId"], best["pageNo"], best["chunkNo"]) == (document_id, 2, 0)
    assert -1 <= found["passages"][1]["score"] < best["score"] <= 1.0001
    assert (found["processingFiles"], found["processingCount"], found["modelsNotAsked"]) == ([], 0, [])
    assert len(user.post("/search", json={"query": QUESTION, "limit": 1}).json()["passages"]) == 1


def test_a_search_names_the_files_that_are_still_in_process(user: httpx.Client, shared: Shared, owner: str) -> None:
    shared.seed(lambda steps: steps.upload("waiting.pdf", owner))
    found = user.post("/search", json={"query": "anything"}).json()
    assert [file["name"] for file in found["processingFiles"]] == ["waiting.pdf"]


def test_a_model_that_cannot_be_asked_is_named(user: httpx.Client, shared: Shared, owner: str) -> None:
    shared.seed(lambda steps: steps.index("a.txt", owner))
    found = user.post("/search", json={"query": "anything"}).json()
    assert (found["passages"], found["modelsNotAsked"]) == ([], ["test:model-3"])


def test_chat_says_that_files_are_in_process_and_answers_from_the_rest(
    user: httpx.Client, shared: Shared, owner: str, shared_admin: httpx.Client
) -> None:
    index(user, shared_admin, [REFUND])
    body = {"sessionId": "s-1", "message": QUESTION}
    answered = user.post("/chat", json=body).json()
    assert answered["status"] == "answered"
    assert [passage["text"] for passage in answered["passages"]] == [REFUND]

    shared.seed(lambda steps: [steps.upload(f"{number}.pdf", owner) for number in range(103)])
    processing = user.post("/chat", json=body)
    shape = processing.json()
    assert shape["status"] == "processing"
    assert shape["message"] == "일부 파일이 처리 중입니다. 잠시 후 다시 시도해주세요."
    assert (len(shape["processingFiles"]), shape["processingCount"]) == (100, 103)
    assert [passage["text"] for passage in shape["passages"]] == [REFUND]
    english = user.post("/chat", json=body, headers={"Accept-Language": "en"})
    assert english.json()["message"] == "Some files are still being processed. Please try again in a moment."
    assert (processing.headers["content-language"], english.headers["content-language"]) == ("ko", "en")
    assert english.headers["vary"] == "Accept-Language"


@pytest.mark.parametrize(
    ("header", "language"),
    [
        ("", "ko"),
        ("*", "ko"),
        ("en", "en"),
        ("en-US,en;q=0.9", "en"),
        ("EN", "en"),
        ("ko-KR,ko;q=0.9,en;q=0.8", "ko"),
        ("ko;q=0.1,en;q=0.2", "en"),
        ("en;q=0, ko", "ko"),
        ("fr, de;q=0.5", "ko"),
        ("fr, en;q=0.3", "en"),
        ("en;q=x", "ko"),
        (";;;,,,", "ko"),
        ("en;q=nan", "ko"),
        ("english", "ko"),
    ],
)
def test_the_language_is_the_one_that_is_preferred(header: str, language: str) -> None:
    assert preferred(header) == language


def test_files_in_process_tell_stage_budget_and_errors(user: httpx.Client, shared: Shared, owner: str) -> None:
    def fail_once(indexing: Indexing) -> None:
        uploaded = indexing.upload("retried.pdf", owner)
        while (claimed := indexing.claim()).document_id != uploaded.document_id:
            pass
        indexing.begin(claimed)
        indexing.fail(claimed, FailureType.STORAGE_UNAVAILABLE)
        indexing.upload("waiting.pdf", owner)

    shared.seed(fail_once)
    page = user.get("/processing-files", headers={"Accept-Language": "en"}).json()
    retried, waiting = page["processingFiles"]
    assert page["processingCount"] == 2
    assert (retried["name"], retried["currentStage"], retried["previousStage"]) == (
        "retried.pdf",
        "PARSING",
        "UPLOADED",
    )
    assert (retried["retryCount"], retried["maxRetry"], retried["remainingRetry"]) == (1, 3, 2)
    assert retried["nextRetryAt"] > retried["createdAt"]
    [error] = retried["errors"]
    assert (error["attempt"], error["stage"], error["failureType"]) == (1, "PARSING", "STORAGE_UNAVAILABLE")
    assert error["errorMessage"] == "the store did not answer"
    assert error["explanation"] == "The store could not be reached."
    assert (waiting["currentStage"], waiting["errors"], waiting["lastRetryAt"]) == ("UPLOADED", [], None)


def test_failures_are_paged_the_newest_first(user: httpx.Client, shared: Shared, owner: str) -> None:
    def steps(indexing: Indexing) -> None:
        for number in range(5):
            uploaded = indexing.upload(f"{number}.pdf", owner)
            while (claimed := indexing.claim()).document_id != uploaded.document_id:
                pass
            indexing.begin(claimed)
            indexing.fail(claimed, FailureType.DOCUMENT_CONTENT_INVALID, "CORRUPT", "broken")

    shared.seed(steps)
    first = user.get("/failures", params={"limit": 3}).json()
    assert [failure["name"] for failure in first["failures"]] == ["4.pdf", "3.pdf", "2.pdf"]
    second = user.get("/failures", params={"limit": 3, "after": first["next"]}).json()
    assert [failure["name"] for failure in second["failures"]] == ["1.pdf", "0.pdf"]
    assert second["next"] is None
    [error] = second["failures"][0]["errors"]
    assert (error["failureReason"], error["errorMessage"]) == ("CORRUPT", "broken")


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"query": ""},
        {"query": "  "},
        {"query": "a\x00b"},
        {"query": "\ud800"},
        {"query": "x" * 10_001},
        {"query": 5},
        {"query": ["x"]},
        {"query": "x", "limit": 0},
        {"query": "x", "limit": 101},
        {"query": "x", "limit": "5"},
        {"query": "x", "owner": "bob"},
    ],
    ids=ascii,
)
def test_a_search_for_nothing_is_invalid(user: httpx.Client, body: dict[str, Any]) -> None:
    headers = {"Content-Type": "application/json"}
    assert code_of(user.post("/search", content=json.dumps(body), headers=headers)) == (422, "INVALID_REQUEST")


def test_any_words_can_be_searched_for(user: httpx.Client, shared_admin: httpx.Client) -> None:
    index(user, shared_admin, [REFUND])
    for query in ("!!!", "🙂", "%s' OR 1=1 --", "a" * 10_000, "\u202e", "한" * 5_000):
        assert user.post("/search", json={"query": query}).status_code == 200


@pytest.mark.parametrize(
    "body",
    [
        {"message": "x"},
        {"sessionId": "", "message": "x"},
        {"sessionId": "s", "message": " "},
        {"sessionId": 1, "message": "x"},
    ],
    ids=ascii,
)
def test_a_chat_message_needs_a_session_and_words(user: httpx.Client, body: dict[str, Any]) -> None:
    assert code_of(user.post("/chat", json=body)) == (422, "INVALID_REQUEST")
