"""Uploads and what can be done with a document over HTTP."""

import asyncio
import contextlib
import hashlib
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import httpx
import pytest
from sqlalchemy import text

from tests.api.conftest import ApiProcess, HttpWorker, Shared, code_of
from tests.domain.indexing import Indexing

BOUNDARY = "holdfast-test"


def form(*parts: tuple[str, bytes], boundary: str = BOUNDARY) -> dict[str, Any]:
    """A multipart body out of raw part heads and contents."""
    body = b"".join(
        b"--%s\r\n%s\r\n\r\n%s\r\n" % (boundary.encode(), head.encode("utf-8", "surrogateescape"), content)
        for head, content in parts
    )
    return {
        "content": body + f"--{boundary}--\r\n".encode(),
        "headers": {"Content-Type": f"multipart/form-data; boundary={boundary}"},
    }


def file_part(file_name: str, content: bytes = b"text") -> tuple[str, bytes]:
    return f'Content-Disposition: form-data; name="file"; filename="{file_name}"', content


def upload(
    user: httpx.Client, name: str = "a.txt", content: bytes = b"text", key: str | None = None, **fields: str
) -> httpx.Response:
    headers = {"Idempotency-Key": key} if key else {}
    return user.post("/documents", files={"file": (name, content)}, data=fields, headers=headers)


def test_an_upload_is_accepted_with_its_row_and_its_bytes(shared: Shared, user: httpx.Client) -> None:
    content = "환불은 14일 안에 신청합니다.".encode()
    answered = upload(user, "환불 정책.txt", content)
    assert answered.status_code == 202
    accepted = answered.json()
    assert accepted["unchanged"] is False
    with shared.engines.app.connect() as connection:
        row = connection.execute(
            text("SELECT * FROM document_versions WHERE id = :id"), {"id": accepted["versionId"]}
        ).one()
    assert row.content_sha256 == hashlib.sha256(content).hexdigest()
    assert row.size_bytes == len(content)
    assert Path(unquote(urlsplit(row.storage_uri).path)).read_bytes() == content
    document = user.get(f"/documents/{accepted['documentId']}").json()
    assert document["name"] == "환불 정책.txt"
    assert document["searchable"] is None
    assert document["beingBuilt"]["state"] == "waiting"
    assert (document["beingBuilt"]["attempt"], document["beingBuilt"]["maxAttempts"]) == (1, 4)
    assert document["beingBuilt"]["chunksTotal"] is None


def test_the_same_bytes_are_unchanged_unless_forced_and_other_bytes_are_a_new_version(user: httpx.Client) -> None:
    first = upload(user).json()
    again = upload(user)
    assert again.status_code == 200
    assert again.json() == first | {"jobId": None, "unchanged": True}
    forced = upload(user, force="true").json()
    assert (forced["documentId"], forced["versionNo"]) == (first["documentId"], 2)
    other = upload(user, content=b"other")
    assert other.status_code == 202
    assert other.json()["versionNo"] == 3


def test_an_idempotency_key_gets_the_first_answer_again_and_no_other_content(user: httpx.Client) -> None:
    first = upload(user, key="key-1")
    assert upload(user, key="key-1").content == first.content
    assert upload(user, key="key-1").status_code == 202
    assert code_of(upload(user, content=b"other", key="key-1")) == (409, "REQUEST_CONFLICT")
    assert code_of(upload(user, key="x" * 256)) == (422, "INVALID_REQUEST")


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("../../etc/passwd", "passwd"),
        ("/etc/shadow", "shadow"),
        ("C:\\Users\\ann\\report.docx", "report.docx"),
        ("..\\..\\windows\\system.ini", "system.ini"),
        ("a/../b.txt", "b.txt"),
        ("  spaced.txt  ", "spaced.txt"),
        ("line\x0bbreak.txt", "linebreak.txt"),
        ("right\u202etxt.exe", "righttxt.exe"),
        ("한글 문서.hwp", "한글 문서.hwp"),
        ("한글.txt".encode().decode("utf-8").replace("한", "\u1112\u1161\u11ab"), "한글.txt"),
        ("file:///etc/passwd", "passwd"),
        (".htaccess", ".htaccess"),
        ("%2e%2e%2fetc%2fpasswd", "%2e%2e%2fetc%2fpasswd"),
    ],
)
def test_a_file_name_opens_no_path(user: httpx.Client, shared: Shared, sent: str, kept: str) -> None:
    answered = user.post("/documents", **form(file_part(sent, sent.encode())))
    assert answered.status_code == 202, answered.text
    assert user.get(f"/documents/{answered.json()['documentId']}").json()["name"] == kept


@pytest.mark.parametrize("sent", ["", ".", "..", "/", "a/", "\\", "a/..", "\x01", " "])
def test_a_file_without_a_usable_name_needs_one(user: httpx.Client, sent: str) -> None:
    assert code_of(user.post("/documents", **form(file_part(sent)))) == (422, "INVALID_REQUEST")
    named = user.post("/documents", **form(file_part(sent), ('Content-Disposition: form-data; name="name"', b"good")))
    assert named.status_code == 202


def test_a_name_of_an_old_korean_program_is_understood(user: httpx.Client) -> None:
    head = 'Content-Disposition: form-data; name="file"; filename="한글.txt"'.encode("cp949")
    answered = user.post("/documents", **form((head.decode("utf-8", "surrogateescape"), b"x")))
    assert user.get(f"/documents/{answered.json()['documentId']}").json()["name"] == "한글.txt"


def test_a_given_name_is_kept_whatever_path_or_url_it_is(user: httpx.Client) -> None:
    for name in ("reports/2026/a.pdf", "https://example.org/a?b=c", "../a"):
        answered = user.post("/documents", files={"file": ("x", name.encode())}, data={"name": name})
        assert user.get(f"/documents/{answered.json()['documentId']}").json()["name"] == name


FORMS: dict[str, dict[str, Any]] = {
    "no form": {"content": b"x", "headers": {"Content-Type": "text/plain"}},
    "JSON": {"json": {"file": "x"}},
    "no content type": {"content": b"x"},
    "no boundary": {"content": b"x", "headers": {"Content-Type": "multipart/form-data"}},
    "an endless boundary": {"content": b"x", "headers": {"Content-Type": "multipart/form-data; boundary=" + "x" * 500}},
    "nothing": {"content": b"", "headers": {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}},
    "garbage": {
        "content": b"\x00\xff" * 1000,
        "headers": {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"},
    },
    "cut short": form(file_part("a.txt")) | {"content": form(file_part("a.txt", b"x" * 1000))["content"][:500]},
    "no file": form(('Content-Disposition: form-data; name="name"', b"x")),
    "two files": form(file_part("a.txt"), file_part("b.txt")),
    "another field": form(file_part("a.txt"), ('Content-Disposition: form-data; name="owner"', b"bob")),
    "a field twice": form(file_part("a.txt"), *[('Content-Disposition: form-data; name="name"', b"x")] * 2),
    "a long field": form(file_part("a.txt"), ('Content-Disposition: form-data; name="name"', b"x" * 5000)),
    "a long name": form(file_part("a.txt"), ('Content-Disposition: form-data; name="name"', b"x" * 1025)),
    "a name with NUL": form(file_part("a.txt"), ('Content-Disposition: form-data; name="name"', b"a\x00b")),
    "a name with a line break": form(file_part("a.txt"), ('Content-Disposition: form-data; name="name"', b"a\nb")),
    "a name that is not UTF-8": form(file_part("a.txt"), ('Content-Disposition: form-data; name="name"', b"\xff")),
    "force in other words": form(file_part("a.txt"), ('Content-Disposition: form-data; name="force"', b"maybe")),
    "a part without a head": form(("", b"x")),
    "a thousand parts": form(*[('Content-Disposition: form-data; name="name"', b"x")] * 1000),
    "an endless part head": form(("X: " + "x" * 1_000_000, b"x")),
}


@pytest.mark.parametrize("request_", FORMS.values(), ids=FORMS.keys())
def test_a_form_that_is_no_upload_is_invalid(user: httpx.Client, request_: dict[str, Any]) -> None:
    assert code_of(user.post("/documents", **request_)) == (422, "INVALID_REQUEST")
    assert user.get("/documents").json()["documents"] == []


def test_an_upload_that_is_too_large_is_refused_by_its_announced_length(user: httpx.Client) -> None:
    assert code_of(upload(user, content=b"x" * 2_200_000)) == (413, "TOO_LARGE")


def test_an_upload_that_is_too_large_is_refused_while_it_streams_and_nothing_is_kept(
    shared: Shared, owner: str
) -> None:
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        yield form(file_part("a.txt", b""))["content"].split(b"\r\n\r\n")[0] + b"\r\n\r\n"
        while sent < 200_000_000:
            sent += 65_536
            yield b"x" * 65_536

    with shared.api.user(owner) as user:
        headers = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
        with contextlib.suppress(httpx.TransportError):  # the server hung up while this client was still sending
            assert code_of(user.post("/documents", content=endless(), headers=headers)) == (413, "TOO_LARGE")
    assert sent < 50_000_000
    with shared.api.user(owner) as user:
        assert user.get("/documents").json()["documents"] == []


def test_a_sender_who_hangs_up_leaves_nothing_behind(shared: Shared, user: httpx.Client, owner: str) -> None:
    token = user.headers["authorization"]
    head = form(file_part("half.txt", b""))["content"].split(b"\r\n\r\n")[0]
    with socket.create_connection(("127.0.0.1", shared.api.port)) as connection:
        connection.sendall(
            f"POST /documents HTTP/1.1\r\nHost: x\r\nAuthorization: {token}\r\nContent-Length: 100000\r\n"
            f"Content-Type: multipart/form-data; boundary={BOUNDARY}\r\n\r\n".encode()
            + head
            + b"\r\n\r\nhalf"
        )
    assert user.get("/documents").json()["documents"] == []


def test_slow_senders_hold_up_no_other_call(shared: Shared, user: httpx.Client) -> None:
    token = user.headers["authorization"]
    head = form(file_part("slow.txt", b""))["content"].split(b"\r\n\r\n")[0]
    slow = []
    try:
        for _ in range(30):  # more than there are threads for uploads
            connection = socket.create_connection(("127.0.0.1", shared.api.port))
            slow.append(connection)
            connection.sendall(
                f"POST /documents HTTP/1.1\r\nHost: x\r\nAuthorization: {token}\r\nContent-Length: 100000\r\n"
                f"Content-Type: multipart/form-data; boundary={BOUNDARY}\r\n\r\n".encode()
                + head
                + b"\r\n\r\nx"
            )
        assert user.get("/documents").status_code == 200
        assert user.get("/healthz").status_code == 200
    finally:
        for connection in slow:
            connection.close()


def test_documents_are_paged_the_newest_first(shared: Shared, user: httpx.Client, owner: str) -> None:
    shared.seed(lambda steps: [steps.upload(f"{number}.txt", owner) for number in range(7)])
    seen: list[str] = []
    after = None
    while True:
        params = {"limit": 3} | ({"after": after} if after else {})
        page = user.get("/documents", params=params).json()
        seen += [document["name"] for document in page["documents"]]
        after = page["next"]
        if after is None:
            break
    assert seen == [f"{number}.txt" for number in reversed(range(7))]
    for wrong in ("0", "101", "-1", "x", "1.5", str(2**64)):
        assert code_of(user.get("/documents", params={"limit": wrong})) == (422, "INVALID_REQUEST")


def test_a_document_can_be_cancelled_retried_and_deleted(shared: Shared, user: httpx.Client, owner: str) -> None:
    document_id = upload(user).json()["documentId"]
    path = f"/documents/{document_id}"
    assert code_of(user.post(f"{path}/retry")) == (409, "NOT_RETRYABLE")
    cancelled = user.post(f"{path}/cancel")
    assert len(cancelled.json()["cancelledJobs"]) == 1
    assert code_of(user.post(f"{path}/cancel")) == (409, "NOTHING_TO_CANCEL")
    assert user.get(path).json()["status"] == "CANCELLED"
    retried = user.post(f"{path}/retry")
    assert retried.status_code == 202
    assert user.get(path).json()["beingBuilt"]["jobId"] == retried.json()["jobId"]
    for _ in range(2):
        deleted = user.delete(path)
        assert (deleted.status_code, deleted.content) == (204, b"")
    assert code_of(user.get(path)) == (404, "NOT_FOUND")
    assert code_of(user.post(f"{path}/retry")) == (404, "NOT_FOUND")
    assert code_of(user.post(f"{path}/cancel")) == (404, "NOT_FOUND")
    assert code_of(user.delete("/documents/999999999")) == (404, "NOT_FOUND")


def test_the_last_error_is_told_in_the_users_language_and_in_the_operators_detail(
    shared: Shared, user: httpx.Client, owner: str, shared_admin: httpx.Client
) -> None:
    shared.seed(lambda steps: steps.upload("a.pdf", owner))
    worker = HttpWorker(shared_admin)
    [claim] = [claim for claim in worker.claim(100) if claim["name"] == "a.pdf"]
    worker.report(
        claim,
        "fail",
        failureType="DOCUMENT_CONTENT_INVALID",
        failureReason="PASSWORD_REQUIRED",
        errorMessage="pdf: needs a password",
    )
    path = f"/documents/{claim['documentId']}"
    korean = user.get(path)
    english = user.get(path, headers={"Accept-Language": "en-US,en;q=0.9,ko;q=0.1"})
    assert korean.headers["content-language"] == "ko"
    assert english.headers["content-language"] == "en"
    error = english.json()["stopped"]["lastError"]
    assert error["errorMessage"] == "pdf: needs a password"
    assert "password" in error["explanation"]
    assert "암호" in korean.json()["stopped"]["lastError"]["explanation"]
    assert korean.json()["stopped"]["attempt"] == 1


def test_a_new_version_leaves_the_old_one_searchable(shared: Shared, user: httpx.Client, owner: str) -> None:
    def steps(indexing: Indexing) -> None:
        indexing.index("a.txt", owner)

    shared.seed(steps)
    accepted = upload(user, "a.txt", b"new content").json()
    document = user.get(f"/documents/{accepted['documentId']}").json()
    assert document["searchable"]["versionNo"] == 1
    assert document["beingBuilt"]["versionNo"] == 2


def test_many_uploads_at_once_are_all_accepted(shared: Shared, owner: str, user: httpx.Client) -> None:
    async def all_at_once() -> list[int]:
        headers = {"Authorization": user.headers["authorization"]}
        async with httpx.AsyncClient(base_url=shared.api.url, headers=headers, timeout=60) as client:
            answers = await asyncio.gather(
                *(
                    client.post("/documents", files={"file": (f"{number}.txt", bytes([number]) * 300_000)})
                    for number in range(20)
                )
            )
        return [answer.status_code for answer in answers]

    assert asyncio.run(all_at_once()) == [202] * 20


def test_an_upload_is_never_whole_in_memory(api_process: ApiProcess) -> None:
    def peak_kib() -> int:
        status = Path(f"/proc/{api_process.process.pid}/status").read_text()
        return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])

    size = 80_000_000

    def pieces() -> Iterator[bytes]:
        head = form(file_part("large.bin", b""))["content"].split(b"\r\n\r\n")[0]
        yield head + b"\r\n\r\n"
        for _ in range(size // 100_000):
            yield b"x" * 100_000
        yield f"\r\n--{BOUNDARY}--\r\n".encode()

    headers = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
    with api_process.user() as user:
        upload(user, "small.txt").raise_for_status()  # loads what any upload needs
        before = peak_kib()
        assert user.post("/documents", content=pieces(), headers=headers).status_code == 202
    assert peak_kib() - before < 40_000
