"""A worker in any language takes documents through all stages, knowing nothing but the API."""

import json
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from tests.api.conftest import HttpWorker, Seed, Shared, code_of, violations
from tests.api.test_failure_report import expire_leases, make_due
from tests.conftest import Engines

CLAIM_FIELDS = {
    "jobId",
    "attemptId",
    "attemptNo",
    "claimToken",
    "leaseExpiresAt",
    "documentId",
    "versionId",
    "stage",
    "storageUri",
    "mediaType",
    "contentSha256",
    "model",
}


def test_a_worker_indexes_an_uploaded_document(
    worker: HttpWorker, admin: httpx.Client, ann: httpx.Client, engines: Engines
) -> None:
    content = "환불은 14일 안에 신청합니다. Refunds take five days.".encode()
    accepted = ann.post("/documents", files={"file": ("refunds.txt", content)}).json()
    [claim] = worker.claim()
    assert claim.keys() >= CLAIM_FIELDS
    assert claim["jobId"] == accepted["jobId"]
    job = f"/admin/indexing-jobs/{claim['jobId']}"
    assert admin.get(f"{job}/source").content == content
    assert code_of(admin.get(f"{job}/text")) == (404, "NOT_FOUND")

    passages = ["환불은 14일 안에 신청합니다. ", "Refunds take five days."]
    answered = worker.bring_to_storing(claim, passages)
    assert answered["missing"] == 0
    assert admin.get(f"{job}/text").json()["text"] == "".join(passages)
    completed = worker.report(claim, "complete").json()
    assert (completed["attemptNo"], completed["versionNo"], completed["current"]) == (1, 1, True)

    view = admin.get(job).json()
    assert (view["status"], view["stage"]) == ("INDEXED", "INDEXED")
    assert [event["type"] for event in view["events"]] == [
        "FILE_UPLOADED",
        "CLAIMED",
        "PARSING_COMPLETED",
        "CHUNKING_COMPLETED",
        "EMBEDDING_COMPLETED",
        "INDEXED",
        "CURRENT_CHANGED",
        "DOCUMENT_INDEXED",
    ]
    assert [attempt["runBy"] for attempt in view["attempts"]] == ["http-worker"]
    assert claim["claimToken"] not in admin.get(job).text
    assert ann.get(f"/documents/{accepted['documentId']}").json()["searchable"]["chunkCount"] == 2
    assert violations(engines) == []


def test_every_report_may_be_sent_twice(worker: HttpWorker, seed: Seed) -> None:
    seed(lambda steps: steps.upload())
    [claim] = worker.claim()
    worker.bring_to_storing(claim, ["one ", "two"])
    again = worker.report(
        claim,
        "parsed",
        text="one two",
        mediaType="text/plain",
        contentSha256=claim["contentSha256"],
        sizeBytes=7,
    )
    assert again.json()["stage"] == "STORING"
    chunks = [
        {"text": "one ", "charStart": 0, "charEnd": 4, "tokenCount": 1},
        {"text": "two", "charStart": 4, "charEnd": 7, "tokenCount": 1},
    ]
    assert worker.report(claim, "chunks", chunks=chunks).json()["chunks"] == []
    assert code_of(worker.report(claim, "chunks", chunks=chunks[:1])) == (409, "STAGE_NOT_CURRENT")
    first = worker.report(claim, "complete")
    assert worker.report(claim, "complete").content == first.content


def test_after_a_failure_another_worker_embeds_only_what_has_no_vector(
    worker: HttpWorker, admin: httpx.Client, seed: Seed, engines: Engines
) -> None:
    seed(lambda steps: steps.upload())
    [claim] = worker.claim()
    passages = [f"passage {number} " for number in range(5)]
    source = "".join(passages)
    worker.report(
        claim, "parsed", text=source, mediaType="text/plain", contentSha256=claim["contentSha256"], sizeBytes=1
    ).raise_for_status()
    chunks, start = [], 0
    for passage in passages:
        chunks.append({"text": passage, "charStart": start, "charEnd": start + len(passage), "tokenCount": 2})
        start += len(passage)
    stored = worker.report(claim, "chunks", chunks=chunks).raise_for_status().json()["chunks"]
    vectors = [{"chunkId": one["chunkId"], "vector": [1.0, 0.0, 0.0]} for one in stored]
    partly = worker.report(claim, "embeddings", embeddings=vectors[:2]).json()
    assert (partly["stage"], partly["missing"]) == ("EMBEDDING", 3)
    worker.fail(claim)
    make_due(engines)

    other = HttpWorker(admin, "other")
    assert other.claim(tasks=["parse"]) == []
    [again] = other.claim(tasks=["embed"])
    assert (again["stage"], again["attemptNo"]) == ("EMBEDDING", 2)
    path = f"/admin/indexing-jobs/{again['jobId']}/chunks"
    page = admin.get(path, params={"limit": 2}).json()
    assert [one["text"] for one in page["chunks"]] == passages[2:4]
    rest = admin.get(path, params={"limit": 2, "after": page["next"]}).json()
    assert ([one["text"] for one in rest["chunks"]], rest["next"]) == (passages[4:], None)
    missing = [{"chunkId": one["chunkId"], "vector": [0.0, 1.0, 0.0]} for one in page["chunks"] + rest["chunks"]]
    assert other.report(again, "embeddings", embeddings=missing).json()["stage"] == "STORING"
    assert other.report(again, "complete").json()["current"] is True


def test_a_lease_is_extended_while_it_lasts_and_its_end_is_a_failure(
    worker: HttpWorker, admin: httpx.Client, seed: Seed, engines: Engines
) -> None:
    seed(lambda steps: steps.upload())
    [claim] = worker.claim()
    extended = worker.report(claim, "extend").json()["leaseExpiresAt"]
    assert extended > claim["leaseExpiresAt"]
    expire_leases(engines)
    for what in ("extend", "complete", "release"):
        assert code_of(worker.report(claim, what)) == (409, "LEASE_EXPIRED")
    assert worker.claim() == []  # it recovered the expired one, which is retried later
    view = admin.get(f"/admin/indexing-jobs/{claim['jobId']}").json()
    assert (view["lastFailureReason"], view["retryCount"]) == ("LEASE_EXPIRED", 1)
    assert code_of(worker.fail(claim)) == (409, "ATTEMPT_CONFLICT")


@pytest.mark.parametrize(
    "body",
    [
        {"workerId": 999_999_999, "limit": 1, "tasks": ["parse"]},
    ],
)
def test_an_unknown_worker_claims_nothing(shared_admin: httpx.Client, body: dict[str, Any]) -> None:
    assert code_of(shared_admin.post("/admin/indexing-jobs/claim", json=body)) == (404, "NOT_FOUND")


@pytest.mark.parametrize(
    "change",
    [
        {"limit": 0},
        {"limit": 101},
        {"limit": "1"},
        {"tasks": []},
        {"tasks": ["claim"]},
        {"tasks": "parse"},
        {"tasks": [None]},
        {"workerId": None},
        {"workerId": -5},
        {"more": 1},
    ],
    ids=str,
)
def test_a_claim_that_asks_for_something_else_is_invalid(shared_admin: httpx.Client, change: dict[str, Any]) -> None:
    body = {"workerId": 1, "limit": 1, "tasks": ["parse"]} | change
    assert code_of(shared_admin.post("/admin/indexing-jobs/claim", json=body)) == (422, "INVALID_REQUEST")


@pytest.mark.parametrize("name", ["", " ", "x" * 256, "a\x00b", None, 5, ["a"]], ids=ascii)
def test_a_worker_needs_a_name(shared_admin: httpx.Client, name: object) -> None:
    assert code_of(shared_admin.post("/admin/workers", json={"name": name})) == (422, "INVALID_REQUEST")


@pytest.fixture
def begun(shared: Shared, shared_admin: httpx.Client, owner: str) -> tuple[HttpWorker, dict[str, Any]]:
    """A worker with one claimed job."""
    shared.seed(lambda steps: steps.upload(owner_id=owner))
    worker = HttpWorker(shared_admin)
    return worker, worker.claim()[0]


PARSED: dict[str, Any] = {
    "text": "one two",
    "pageStarts": [0],
    "mediaType": "text/plain",
    "contentSha256": "0" * 64,
    "sizeBytes": 7,
}


@pytest.mark.parametrize(
    "change",
    [
        {"text": ""},
        {"text": " \n "},
        {"text": "a\x00b"},
        {"text": 5},
        {"text": ["x"]},
        {"pageStarts": [-1]},
        {"pageStarts": [2**31]},
        {"pageStarts": ["0"]},
        {"contentSha256": "x"},
        {"contentSha256": "F" * 64},
        {"sizeBytes": -1},
        {"mediaType": ""},
        {"mediaType": "x" * 256},
        {"metadata": {"a": {"b": 1}}},
        {"metadata": {"a": "\x00"}},
        {"metadata": [1]},
        {"title": "x" * 256},
    ],
    ids=ascii,
)
def test_a_text_that_cannot_be_stored_is_invalid_and_the_claim_still_holds(
    begun: tuple[HttpWorker, dict[str, Any]], change: dict[str, Any]
) -> None:
    worker, claim = begun
    good = PARSED | {"contentSha256": claim["contentSha256"] or "0" * 64}
    refused = worker.report(claim, "parsed", **(good | change))
    assert code_of(refused) == (422, "INVALID_REQUEST")
    assert worker.report(claim, "extend").status_code == 200


CHUNK: dict[str, Any] = {"text": "one ", "charStart": 0, "charEnd": 4, "pageNo": 1, "tokenCount": 1}


@pytest.mark.parametrize(
    "change",
    [
        {"text": ""},
        {"text": " "},
        {"text": "\x00"},
        {"charStart": -1},
        {"charEnd": 5},
        {"charEnd": 0},
        {"charEnd": 2**31},
        {"tokenCount": 0},
        {"pageNo": 0},
        {"pageNo": "1"},
    ],
    ids=ascii,
)
def test_chunks_that_cannot_be_stored_are_invalid(
    begun: tuple[HttpWorker, dict[str, Any]], change: dict[str, Any]
) -> None:
    worker, claim = begun
    worker.report(claim, "parsed", **(PARSED | {"contentSha256": claim["contentSha256"]})).raise_for_status()
    assert code_of(worker.report(claim, "chunks", chunks=[CHUNK | change])) == (422, "INVALID_REQUEST")
    assert code_of(worker.report(claim, "chunks", chunks=[])) == (422, "INVALID_REQUEST")
    assert worker.report(claim, "chunks", chunks=[CHUNK]).status_code == 200


@pytest.mark.parametrize(
    "vector",
    ["[]", "[1]", "[1, 2, 3, 4]", "[0, 0, 0]", "[NaN, 0, 0]", "[Infinity, 0, 0]", "[1e39, 0, 0]", "[1e400, 0, 0]",
     '["1", 0, "x"]', "null", "1", "[null, 0, 0]", "[[1], 0, 0]"],
)  # fmt: skip
def test_vectors_that_are_none_of_the_model_are_invalid(begun: tuple[HttpWorker, dict[str, Any]], vector: str) -> None:
    worker, claim = begun
    worker.report(claim, "parsed", **(PARSED | {"contentSha256": claim["contentSha256"]})).raise_for_status()
    [stored] = worker.report(claim, "chunks", chunks=[CHUNK]).json()["chunks"]
    proof = json.dumps(worker.proof(claim))[:-1]
    body = f'{proof}, "embeddings": [{{"chunkId": {stored["chunkId"]}, "vector": {vector}}}]}}'
    path = f"/admin/indexing-jobs/{claim['jobId']}/attempts/{claim['attemptId']}/embeddings"
    refused = worker.admin.post(path, content=body, headers={"Content-Type": "application/json"})
    assert code_of(refused) == (422, "INVALID_REQUEST")
    assert worker.report(claim, "extend").status_code == 200


def test_a_vector_of_a_chunk_of_another_version_is_invalid(begun: tuple[HttpWorker, dict[str, Any]]) -> None:
    worker, claim = begun
    worker.report(claim, "parsed", **(PARSED | {"contentSha256": claim["contentSha256"]})).raise_for_status()
    worker.report(claim, "chunks", chunks=[CHUNK]).raise_for_status()
    foreign = [{"chunkId": 2**62, "vector": [1, 0, 0]}]
    assert code_of(worker.report(claim, "embeddings", embeddings=foreign)) == (422, "INVALID_REQUEST")


def test_reports_out_of_their_stage_are_refused(begun: tuple[HttpWorker, dict[str, Any]]) -> None:
    worker, claim = begun
    assert code_of(worker.report(claim, "chunks", chunks=[CHUNK])) == (409, "STAGE_NOT_CURRENT")
    vectors = [{"chunkId": 1, "vector": [1, 0, 0]}]
    assert code_of(worker.report(claim, "embeddings", embeddings=vectors)) == (409, "STAGE_NOT_CURRENT")


def test_a_job_that_does_not_exist_is_not_found(shared_admin: httpx.Client) -> None:
    for path in ("", "/text", "/chunks", "/source"):
        assert code_of(shared_admin.get(f"/admin/indexing-jobs/999999999{path}")) == (404, "NOT_FOUND")


def test_a_source_outside_the_store_is_not_opened(shared: Shared, shared_admin: httpx.Client, owner: str) -> None:
    uploaded = shared.seed(lambda steps: steps.upload("etc/passwd", owner))  # its URI is file:///etc/passwd
    answered = shared_admin.get(f"/admin/indexing-jobs/{uploaded.job_id}/source")
    assert code_of(answered) == (404, "NOT_FOUND")
    with shared.engines.app.connect() as connection:
        stored = connection.execute(
            text("SELECT storage_uri FROM document_versions WHERE id = :id"), {"id": uploaded.version_id}
        ).scalar_one()
    assert stored == "file:///etc/passwd"
