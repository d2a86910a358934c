"""A worker's failure report over HTTP, from the first claim to the final failure."""

import json
from datetime import datetime
from typing import Any
from uuid import uuid4

import httpx
import pytest
from sqlalchemy import text
from websockets.sync.client import connect

from tests.api.conftest import Api, HttpWorker, Seed, Shared, code_of, user_token, violations
from tests.conftest import Engines


def make_due(engines: Engines) -> None:
    """Let every waiting retry be due: the row is moved, not the clock."""
    with engines.superuser.begin() as connection:
        connection.execute(text("SET session_replication_role = replica"))
        connection.execute(text("UPDATE embedding_jobs SET next_retry_at = created_at WHERE next_retry_at IS NOT NULL"))


def expire_leases(engines: Engines) -> None:
    with engines.superuser.begin() as connection:
        connection.execute(text("SET session_replication_role = replica"))
        connection.execute(text("UPDATE embedding_jobs SET lease_expires_at = now() - interval '1 minute'"))


def test_a_failure_is_replayed_byte_for_byte_also_after_the_job_went_on(
    worker: HttpWorker, seed: Seed, engines: Engines
) -> None:
    seed(lambda steps: steps.upload())
    [claim] = worker.claim()
    first = worker.fail(claim)
    assert first.status_code == 200
    assert list(first.json()) == [
        "jobId",
        "attemptId",
        "attemptNo",
        "status",
        "failedStage",
        "failureType",
        "errorMessage",
        "retryable",
        "outcome",
        "retryCount",
        "maxRetryCount",
        "nextRetryAt",
        "failedAt",
    ]
    assert worker.fail(claim).content == first.content
    make_due(engines)
    [again] = worker.claim()
    assert worker.fail(claim).content == first.content
    worker.fail(again)
    assert worker.fail(claim).content == first.content


def test_the_whole_way_from_the_first_claim_to_the_final_failure(
    api: Api, worker: HttpWorker, seed: Seed, engines: Engines, ann: httpx.Client
) -> None:
    uploaded = seed(lambda steps: steps.upload("report.pdf"))
    protocols: Any = ["bearer", user_token("ann")]
    with connect(f"ws://127.0.0.1:{api.port}/notifications", subprotocols=protocols) as listener:
        fail_four_times(worker, engines)
        told = json.loads(listener.recv(10))
        with pytest.raises(TimeoutError):
            listener.recv(1.5)
    assert told["type"] == "DOCUMENT_FAILED"

    document = ann.get(f"/documents/{uploaded.document_id}").json()
    assert document["status"] == "FAILED"
    assert document["stopped"]["attempt"] == document["stopped"]["maxAttempts"] == 4
    [failure] = ann.get("/failures").json()["failures"]
    assert [error["errorMessage"] for error in failure["errors"]] == ["try 1", "try 2", "try 3", "try 4"]
    assert violations(engines) == []


def fail_four_times(worker: HttpWorker, engines: Engines) -> None:
    tokens = set()
    for attempt_no in range(1, 5):
        [claim] = worker.claim()
        assert claim["attemptNo"] == attempt_no
        assert claim["stage"] == "PARSING"
        tokens.add(claim["claimToken"])
        first = worker.fail(claim, error_message=f"try {attempt_no}")
        assert worker.fail(claim, error_message=f"try {attempt_no}").content == first.content
        assert code_of(worker.fail(claim, error_message="another")) == (409, "ATTEMPT_CONFLICT")
        assert code_of(worker.fail(claim, "WORKER_INTERNAL_ERROR", f"try {attempt_no}")) == (409, "ATTEMPT_CONFLICT")
        result = first.json()
        if attempt_no < 4:
            delay = datetime.fromisoformat(result["nextRetryAt"]) - datetime.fromisoformat(result["failedAt"])
            assert delay.total_seconds() == 10 * 2 ** (attempt_no - 1)
            assert (result["outcome"], result["retryCount"]) == ("RETRY", attempt_no)
            assert worker.claim() == []  # before its time
            make_due(engines)
        else:
            assert (result["outcome"], result["retryCount"], result["nextRetryAt"]) == ("FAILED", 3, None)
    assert len(tokens) == 4
    assert worker.claim() == []


def test_reports_are_refused_in_the_specified_order(worker: HttpWorker, seed: Seed, engines: Engines) -> None:
    seed(lambda steps: (steps.upload("a"), steps.upload("b")))
    first, second = worker.claim(2)
    unknown = first | {"jobId": 999_999}
    assert code_of(worker.fail(unknown)) == (404, "NOT_FOUND")
    assert code_of(worker.fail(first | {"attemptId": 999_999})) == (404, "NOT_FOUND")
    assert code_of(worker.fail(first | {"attemptId": second["attemptId"]})) == (404, "NOT_FOUND")
    wrong_token = first | {"claimToken": str(uuid4())}
    assert code_of(worker.fail(wrong_token)) == (409, "CLAIM_MISMATCH")
    other = HttpWorker(worker.admin, "other")
    assert code_of(other.fail(first)) == (409, "CLAIM_MISMATCH")
    expire_leases(engines)
    assert code_of(worker.fail(first)) == (409, "LEASE_EXPIRED")
    assert code_of(worker.fail(wrong_token)) == (409, "CLAIM_MISMATCH")  # before the lease is looked at


def test_an_attempt_that_was_released_or_cancelled_takes_no_report(
    worker: HttpWorker, seed: Seed, ann: httpx.Client
) -> None:
    uploaded = seed(lambda steps: steps.upload())
    [claim] = worker.claim()
    assert worker.report(claim, "release").json()["status"] == "RELEASED"
    assert worker.report(claim, "release").status_code == 200
    assert code_of(worker.fail(claim)) == (409, "ATTEMPT_NOT_CURRENT")
    [claim] = worker.claim()  # due at once, and no retry was counted
    assert (claim["attemptNo"], claim["retryCount"]) == (2, 0)
    ann.post(f"/documents/{uploaded.document_id}/cancel").raise_for_status()
    for what in ("extend", "complete", "release"):
        assert code_of(worker.report(claim, what)) == (409, "ATTEMPT_NOT_CURRENT")


def test_a_completed_attempt_takes_no_failure_and_a_failed_one_no_completion(
    worker: HttpWorker, seed: Seed, engines: Engines
) -> None:
    seed(lambda steps: (steps.upload("a"), steps.upload("b")))
    first, second = worker.claim(2)
    assert code_of(worker.report(first, "complete")) == (409, "VERSION_INCOMPLETE")
    worker.bring_to_storing(first, ["one ", "two"])
    completed = worker.report(first, "complete")
    assert completed.json()["current"] is True
    assert worker.report(first, "complete").content == completed.content
    assert code_of(worker.fail(first)) == (409, "ATTEMPT_CONFLICT")
    worker.fail(second)
    assert code_of(worker.report(second, "complete")) == (409, "ATTEMPT_CONFLICT")


HOSTILE_TEXTS: list[tuple[str, bytes]] = [
    ("NUL", b'"a\\u0000b"'),
    ("a lone surrogate", b'"\\ud800 \\udfff"'),
    ("only a lone surrogate", b'"\\ud800"'),
    ("ten megabytes", b'"' + b"x" * 10_000_000 + b'"'),
    ("ten megabytes of words", b'"' + b"a." * 5_000_000 + b'"'),
    ("ten megabytes of escapes", b'"' + b"\\u0001" * 1_700_000 + b'"'),
    ("percent signs", b'"%s %(x)s {0} :name"'),
    ("terminal codes", b'"\\u001b[31mred\\u001b[0m"'),
    ("Korean", '"한글이 깨지지 않는다 🙂"'.encode()),
    ("SQL", b'"\'; DROP TABLE embedding_jobs; --"'),
]


@pytest.mark.parametrize("literal", [text for _, text in HOSTILE_TEXTS], ids=[name for name, _ in HOSTILE_TEXTS])
def test_a_failure_is_recorded_whatever_its_text_is_and_replayed(
    shared: Shared, shared_admin: httpx.Client, owner: str, literal: bytes
) -> None:
    worker = HttpWorker(shared_admin)
    shared.seed(lambda steps: steps.upload(owner_id=owner))
    [claim] = worker.claim()
    body = b'{"workerId": %d, "claimToken": "%s", "failureType": "WORKER_INTERNAL_ERROR", "errorMessage": %s}' % (
        worker.id,
        claim["claimToken"].encode(),
        literal,
    )
    path = f"/admin/indexing-jobs/{claim['jobId']}/attempts/{claim['attemptId']}/fail"
    headers = {"Content-Type": "application/json"}
    first = worker.admin.post(path, content=body, headers=headers)
    assert first.status_code == 200, first.text
    assert 0 < len(first.json()["errorMessage"].encode()) <= 8192
    assert worker.admin.post(path, content=body, headers=headers).content == first.content


def test_no_secret_of_the_settings_gets_into_a_stored_message(worker: HttpWorker, seed: Seed) -> None:
    seed(lambda steps: steps.upload())
    [claim] = worker.claim()
    token = worker.admin.headers["authorization"].removeprefix("Bearer ")
    stored = worker.fail(claim, error_message=f"sent {token} and got 401").json()["errorMessage"]
    assert stored == "sent *** and got 401"


GOOD: dict[str, Any] = {
    "workerId": 1,
    "claimToken": str(uuid4()),
    "failureType": "WORKER_INTERNAL_ERROR",
    "errorMessage": "x",
}
INVALID: list[dict[str, Any]] = [
    {"failureType": "NO_SUCH_TYPE"},
    {"failureType": None},
    {"failureType": ["WORKER_INTERNAL_ERROR"]},
    {"claimToken": "not-a-uuid"},
    {"claimToken": 7},
    {"errorMessage": ""},
    {"errorMessage": " \n\t"},
    {"errorMessage": 5},
    {"errorMessage": None},
    {"workerId": "1"},
    {"workerId": 0},
    {"workerId": -1},
    {"workerId": 2**63},
    {"workerId": 1.5},
    {"workerId": True},
    {"failureReason": "lower case"},
    {"retryAfterSeconds": -1},
    {"retryAfterSeconds": 1e308},
    {"unknownField": 1},
    {"\ud800": 1},
]


@pytest.mark.parametrize("change", INVALID, ids=[ascii(change) for change in INVALID])
def test_a_report_that_says_something_else_is_invalid(shared_admin: httpx.Client, change: dict[str, Any]) -> None:
    body = json.dumps(GOOD | change)
    answered = shared_admin.post(
        "/admin/indexing-jobs/1/attempts/1/fail", content=body, headers={"Content-Type": "application/json"}
    )
    assert code_of(answered) == (422, "INVALID_REQUEST")


BODIES: list[tuple[str, bytes]] = [
    ("nothing", b""),
    ("no JSON", b"{"),
    ("not UTF-8", b'{"errorMessage": "\xff"}'),
    ("a list", b"[]"),
    ("null", b"null"),
    ("deep", b"[" * 100_000 + b"]" * 100_000),
    ("deep objects", b'{"a":' * 100_000 + b"1" + b"}" * 100_000),
    ("a number of 5,000 digits", b'{"workerId": ' + b"9" * 5_000 + b"}"),
    ("NaN", b'{"retryAfterSeconds": NaN}'),
    ("twice the same key", b'{"workerId": 1, "workerId": 2}'),
]


@pytest.mark.parametrize("body", [body for _, body in BODIES], ids=[name for name, _ in BODIES])
@pytest.mark.parametrize("media_type", ["application/json", "text/plain"])
def test_a_body_that_cannot_be_read_is_invalid(shared_admin: httpx.Client, body: bytes, media_type: str) -> None:
    answered = shared_admin.post(
        "/admin/indexing-jobs/1/attempts/1/fail", content=body, headers={"Content-Type": media_type}
    )
    assert code_of(answered) == (422, "INVALID_REQUEST")


@pytest.mark.parametrize("job_id", ["0", "-1", str(2**63), "9" * 5000, "1.5", "x", "%00", "é"])
def test_an_id_that_no_row_can_have_is_invalid(shared_admin: httpx.Client, job_id: str) -> None:
    assert code_of(shared_admin.get(f"/admin/indexing-jobs/{job_id}"))[0] in (404, 422)
    assert code_of(shared_admin.post(f"/admin/indexing-jobs/{job_id}/attempts/1/fail", json=GOOD))[0] in (404, 422)


def test_a_body_that_is_too_long_is_refused_before_it_is_read(shared_admin: httpx.Client) -> None:
    too_long = shared_admin.post(
        "/admin/indexing-jobs/1/attempts/1/fail",
        content=b"x" * (65 * 1024 * 1024),
        headers={"Content-Type": "application/json"},
    )
    assert code_of(too_long) == (413, "TOO_LARGE")
