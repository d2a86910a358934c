"""Who may call what: the admin token opens /admin, a signed token opens its owner's documents, and nothing else."""

import base64
import json
from contextlib import closing
from http.client import HTTPConnection
from typing import Any

import httpx
import pytest
from pydantic import ValidationError

import settings
from api.app import make_app
from api.callers import sign_token
from tests.api.conftest import ADMIN_TOKEN, JWT_SECRET, Api, Shared, code_of, served, soon, user_token
from tests.domain.indexing import Indexing

OPEN = {"/healthz", "/readyz", "/metrics"}


def calls() -> list[tuple[str, str]]:
    """Every call of the API, its path filled in with ids."""
    paths = make_app().openapi()["paths"]
    return sorted((method.upper(), path) for path, methods in paths.items() if path not in OPEN for method in methods)


def filled(path: str) -> str:
    for name in ("jobId", "attemptId", "documentId", "notificationId"):
        path = path.replace(f"{{{name}}}", "1")
    return path


CALLS = calls()
ADMIN_CALLS = [call for call in CALLS if call[1].startswith("/admin")]
USER_CALLS = [call for call in CALLS if not call[1].startswith("/admin")]


ODD_HEADERS = [
    None,
    b"",
    b"Bearer",
    b"Bearer ",
    b"Bearer wrong",
    b"Bearer \xff\xfe",
    f"Basic {ADMIN_TOKEN}".encode(),
    ADMIN_TOKEN.encode(),
    f"Bearer {ADMIN_TOKEN}x".encode(),
    f"Bearer {ADMIN_TOKEN[:-1]}".encode(),
]


def asked(api: Api, method: str, path: str, authorization: bytes | None) -> tuple[int, Any, Any]:
    """Status, headers and problem, for a header that httpx would not send."""
    with closing(HTTPConnection("127.0.0.1", api.port, timeout=30)) as connection:
        connection.putrequest(method, path)
        if authorization is not None:
            connection.putheader("Authorization", authorization)
        connection.putheader("Content-Length", "0")
        connection.endheaders()
        answered = connection.getresponse()
        return answered.status, answered.headers, json.loads(answered.read())


def as_id(call: Any) -> str:
    return " ".join(call) if isinstance(call, tuple) else ascii(call)


def test_the_calls_are_those_of_the_interface() -> None:
    assert set(CALLS) >= {
        ("POST", "/admin/workers"),
        ("POST", "/admin/indexing-jobs/claim"),
        ("POST", "/admin/indexing-jobs/{jobId}/attempts/{attemptId}/fail"),
        ("POST", "/admin/indexing-jobs/{jobId}/attempts/{attemptId}/complete"),
        ("POST", "/admin/indexing-jobs/{jobId}/attempts/{attemptId}/extend"),
        ("POST", "/admin/indexing-jobs/{jobId}/attempts/{attemptId}/release"),
        ("POST", "/admin/indexing-jobs/{jobId}/attempts/{attemptId}/parsed"),
        ("POST", "/admin/indexing-jobs/{jobId}/attempts/{attemptId}/chunks"),
        ("POST", "/admin/indexing-jobs/{jobId}/attempts/{attemptId}/embeddings"),
        ("GET", "/admin/indexing-jobs/{jobId}"),
        ("POST", "/documents"),
        ("GET", "/documents"),
        ("GET", "/documents/{documentId}"),
        ("DELETE", "/documents/{documentId}"),
        ("POST", "/documents/{documentId}/retry"),
        ("POST", "/documents/{documentId}/cancel"),
        ("GET", "/processing-files"),
        ("GET", "/failures"),
        ("POST", "/search"),
        ("POST", "/chat"),
        ("GET", "/notifications"),
        ("POST", "/notifications/{notificationId}/read"),
    }


@pytest.mark.parametrize("call", ADMIN_CALLS, ids=as_id)
def test_an_admin_call_needs_the_admin_token(shared: Shared, call: tuple[str, str]) -> None:
    method, path = call[0], filled(call[1])
    for value in ODD_HEADERS:
        status, headers, problem = asked(shared.api, method, path, value)
        assert (status, problem["code"]) == (401, "UNAUTHENTICATED")
        assert headers["www-authenticate"] == "Bearer"
    with shared.api.user() as user:
        assert code_of(user.request(method, path, json={})) == (401, "UNAUTHENTICATED")


@pytest.mark.parametrize("call", USER_CALLS, ids=as_id)
def test_a_users_call_needs_his_token(shared: Shared, call: tuple[str, str]) -> None:
    method, path = call[0], filled(call[1])
    for token in (None, ADMIN_TOKEN):
        with shared.api.client(token) as client:
            assert code_of(client.request(method, path, json={})) == (401, "UNAUTHENTICATED")


def unsigned(claims: dict[str, Any]) -> str:
    def part(value: Any) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()

    return f"{part({'alg': 'none', 'typ': 'JWT'})}.{part(claims)}."


FORGED = {
    "alg none": unsigned({"sub": "ann"}),
    "alg none with a signature": unsigned({"sub": "ann"}) + "x",
    "another secret": user_token("ann", secret="0" * 64),
    "another algorithm": user_token("ann", algorithm="HS512"),
    "expired": user_token("ann", exp=soon(-1)),
    "not yet": user_token("ann", nbf=soon(600)),
    "no subject": "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.e30.x",
    "an empty subject": user_token(""),
    "a blank subject": user_token("  "),
    "a long subject": user_token("x" * 256),
    "a subject with NUL": user_token("a\x00b"),
    "half a character": user_token("\ud800"),
    "no token": "x",
    "two dots": "..",
    "long": "a" * 20_000,
    "a huge expiry": user_token("ann", exp=10**400),
    "an expiry in words": user_token("ann", exp="tomorrow"),
}


@pytest.mark.parametrize("token", FORGED.values(), ids=FORGED.keys())
def test_a_token_that_was_not_signed_here_for_now_is_refused(shared: Shared, token: str) -> None:
    with shared.api.client(token) as client:
        assert code_of(client.get("/documents")) == (401, "UNAUTHENTICATED")


def test_a_token_with_an_audience_and_other_claims_is_taken(shared: Shared) -> None:
    with shared.api.client(user_token("ann", aud="app", iss="here", role="user", exp=soon(60))) as client:
        assert client.get("/documents").status_code == 200


def test_a_token_made_by_the_command_is_taken(shared: Shared) -> None:
    from pydantic import SecretStr

    with shared.api.client(sign_token("ann", SecretStr(JWT_SECRET), soon(60))) as client:
        assert client.get("/documents").status_code == 200


def test_without_tokens_configured_every_call_is_closed(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (environment | {"ADMIN_TOKEN": "", "JWT_SECRET": ""}).items():
        monkeypatch.setenv(name, value)
    settings.settings.cache_clear()
    try:
        with served() as api, api.client() as nobody, api.client(ADMIN_TOKEN) as admin, api.user() as user:
            for client in (nobody, admin, user):
                assert code_of(client.post("/admin/workers", json={"name": "x"})) == (403, "FORBIDDEN")
                assert code_of(client.get("/documents")) == (403, "FORBIDDEN")
            for header in ODD_HEADERS:
                for path in ("/admin/indexing-jobs/1", "/documents"):
                    status, _, problem = asked(api, "GET", path, header)
                    assert (status, problem["code"]) == (403, "FORBIDDEN")
    finally:
        settings.settings.cache_clear()


@pytest.mark.parametrize(("name", "value"), [("ADMIN_TOKEN", "short"), ("JWT_SECRET", "x" * 31)])
def test_a_secret_that_can_be_guessed_is_no_setting(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    for variable, set_to in (environment | {name: value}).items():
        monkeypatch.setenv(variable, set_to)
    with pytest.raises(ValidationError, match="must have at least"):
        settings.Settings()  # type: ignore[call-arg]


def test_another_users_things_are_not_found_in_any_call_and_nothing_of_them_leaks(shared: Shared, owner: str) -> None:
    secret_name = "ann's secret plan.pdf"

    def steps(indexing: Indexing) -> tuple[int, int]:
        searchable = indexing.index(secret_name, owner, ["the secret passage"])
        return searchable.document_id, indexing.upload("also secret", owner).document_id

    indexed, waiting = shared.seed(steps)
    with shared.api.user(owner) as ann, shared.api.user(f"not-{owner}") as bob:
        [told] = ann.get("/notifications").json()["notifications"]
        answers: list[httpx.Response] = []
        for document_id in (indexed, waiting):
            path = f"/documents/{document_id}"
            answers += [bob.get(path), bob.delete(path), bob.post(f"{path}/retry"), bob.post(f"{path}/cancel")]
        answers.append(bob.post(f"/notifications/{told['id']}/read"))
        for answered in answers:
            assert code_of(answered) == (404, "NOT_FOUND")
        # What does not exist at all is answered in the same words.
        unknown = bob.get("/documents/999999999").json()
        assert answers[0].json() == unknown | {"detail": unknown["detail"].replace("999999999", str(indexed))}

        shown = [bob.get(path) for path in ("/documents", "/processing-files", "/failures", "/notifications")]
        shown.append(bob.post("/search", json={"query": "the secret passage"}))
        shown.append(bob.post("/chat", json={"sessionId": "s", "message": "the secret passage"}))
        for answered in shown:
            assert answered.status_code == 200
            assert "secret" not in answered.text
        assert shown[-1].json() == {"status": "answered", "passages": [], "modelsNotAsked": []}
        cursor = ann.get("/notifications").json()["cursor"]
        assert bob.get("/notifications", params={"after": cursor}).json()["notifications"] == []
        assert ann.get(f"/documents/{indexed}").json()["name"] == secret_name
        assert ann.get(f"/documents/{waiting}").json()["beingBuilt"]["state"] == "waiting"
