import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from domain.failures import FailureType
from stages.store import StorageUriRefused, open_store, read_source

from .conftest import Answer, Server, free_port, invalid, refused

MIB = 1024 * 1024
STORE = "s3://documents/uploads"
CONTENT = "환불 규정".encode()
IMPATIENT = {
    "client_options": {"timeout": "1s", "connect_timeout": "1s"},
    "retry_config": {"max_retries": 0, "retry_timeout": timedelta(seconds=1)},
}


def options(url: str, **more: Any) -> dict[str, Any]:
    keys = {"access_key_id": "AKIAEXAMPLE", "secret_access_key": "sekrit", "region": "us-east-1"}
    return {"endpoint": url, **keys, **more}


def read(uri: str, url: str, max_bytes: int = 100 * MIB, **expected: Any) -> bytes:
    known = {"expected_sha256": None, "expected_size": None} | expected
    return read_source(uri, STORE, max_bytes=max_bytes, s3=options(url, **IMPATIENT), **known).content


def test_what_is_put_can_be_read_by_its_uri(s3_url: str, tmp_path: Path) -> None:
    store = open_store(STORE, options(s3_url))
    stored = store.put_bytes([CONTENT], MIB)
    sha256 = hashlib.sha256(CONTENT).hexdigest()
    assert stored.uri == f"{STORE}/{sha256[:2]}/{sha256}"
    assert read(stored.uri, s3_url, expected_sha256=sha256, expected_size=len(CONTENT)) == CONTENT
    (tmp_path / "a.txt").write_bytes(CONTENT)
    assert store.put_file(tmp_path / "a.txt") == stored


def test_a_large_file_is_sent_in_parts_and_comes_back_whole(s3_url: str, tmp_path: Path) -> None:
    content = os.urandom(MIB) * 20
    (tmp_path / "large").write_bytes(content)
    stored = open_store(STORE, options(s3_url)).put_file(tmp_path / "large")
    assert stored.size_bytes == 20 * MIB
    assert hashlib.sha256(read(stored.uri, s3_url)).hexdigest() == stored.sha256


def test_a_file_that_changes_while_it_is_sent_is_not_stored(
    s3_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "growing"
    path.write_bytes(bytes(20 * MIB))
    import stages.store_s3 as s3

    def other_pieces(file: Any, passes: list[int] = []) -> Iterator[bytes]:  # noqa: B006
        passes.append(1)
        yield (b"\0" if len(passes) == 1 else b"\1") * (20 * MIB)

    monkeypatch.setattr(s3, "pieces_of", other_pieces)
    with refused(FailureType.STORAGE_UNAVAILABLE) as caught:
        open_store(STORE, options(s3_url)).put_file(path)
    assert "changed while it was being uploaded" in caught[0].message


def test_the_usual_variables_name_endpoint_and_credentials(s3_url: str) -> None:
    variables = {
        "AWS_ENDPOINT_URL": s3_url,
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
        "AWS_REGION": "us-east-1",
    }
    program = (
        "from stages.store import open_store, read_source\n"
        f"uri = open_store({STORE!r}).put_bytes([b'by environment'], 100).uri\n"
        f"print(read_source(uri, {STORE!r}, None, None, 100).content.decode())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | variables, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "by environment\n", done.stderr


def test_a_missing_object_and_a_missing_bucket_are_missing_for_good(s3_url: str) -> None:
    with invalid("SOURCE_MISSING") as caught:
        read(f"{STORE}/없음.pdf", s3_url)
    assert "GET s3://documents/uploads/없음.pdf" in caught[0].message
    assert "NoSuchKey" in caught[0].message
    with invalid("SOURCE_MISSING"):
        read_source("s3://nowhere/a", "s3://nowhere", None, None, MIB, options(s3_url, **IMPATIENT))


@pytest.mark.parametrize(
    "uri",
    [
        "s3://other-bucket/uploads/a",
        "s3://documents/elsewhere/a",
        "s3://documents/uploads-of-others/a",
        "s3://documents/uploads",
        "s3://documents/uploads/",
        "s3://documents/uploads/../private/a",
        "s3://documents/uploads/./a",
        "s3://documents/uploads//a",
        "s3:///uploads/a",
        "https://documents/uploads/a",
        "file:///etc/passwd",
        "",
    ],
)
def test_what_lies_outside_the_store_is_refused_without_a_request(server: Server, uri: str) -> None:
    with pytest.raises(StorageUriRefused, match="s3://documents/uploads"):
        open_store(STORE, options(server.url)).refuse_outside(uri)
    with invalid("SOURCE_REFUSED"):
        read(uri, server.url)
    assert server.requests == []


def test_a_key_may_hold_any_letter(s3_url: str) -> None:
    import obstore
    from obstore.store import S3Store

    raw = S3Store("documents", **options(s3_url, client_options={"allow_http": True}))
    for key in ("uploads/보고서 (최종).pdf", "uploads/a?b#c&d=e+f%20g"):
        obstore.put(raw, key, CONTENT)
        assert read(f"s3://documents/{key}", s3_url) == CONTENT


@pytest.mark.parametrize(
    ("status", "reason"),
    [(401, "ACCESS_REFUSED"), (403, "ACCESS_REFUSED"), (429, None), (500, None), (503, None)],
)
def test_a_refusing_or_throttled_store_is_unavailable(server: Server, status: int, reason: str | None) -> None:
    body = b"<?xml version='1.0'?><Error><Code>SlowDown</Code><AWSAccessKeyId>AKIAEXAMPLE</AWSAccessKeyId></Error>"
    server.answer = lambda _: Answer(status, body)
    with refused(FailureType.STORAGE_UNAVAILABLE, reason) as caught:
        read(f"{STORE}/a", server.url)
    message = caught[0].message
    assert "S3 store: GET s3://documents/uploads/a" in message
    assert "AKIAEXAMPLE" not in message
    if status not in (401, 403):  # obstore keeps the status of these to itself
        assert str(status) in message


def test_a_store_that_does_not_answer_is_unavailable(server: Server) -> None:
    server.answer = lambda _: Answer(wait_seconds=30)
    with refused(FailureType.STORAGE_UNAVAILABLE):
        read(f"{STORE}/a", server.url)


def test_a_store_that_is_not_there_is_unavailable_and_its_address_is_told() -> None:
    port = free_port()
    with refused(FailureType.STORAGE_UNAVAILABLE) as caught:
        read(f"{STORE}/a", f"http://127.0.0.1:{port}")
    assert f"127.0.0.1:{port}" in caught[0].message


def test_an_object_cut_short_on_the_way_is_tried_again_later(server: Server) -> None:
    server.answer = lambda _: Answer(
        body=b"half", announced_length=8, headers={"Last-Modified": "Mon, 01 Sep 2025 00:00:00 GMT", "ETag": '"x"'}
    )
    with refused(FailureType.STORAGE_UNAVAILABLE):
        read(f"{STORE}/a", server.url)


def test_a_document_over_the_limit_is_not_read(s3_url: str) -> None:
    stored = open_store(STORE, options(s3_url)).put_bytes([b"x" * 5000], MIB)
    with invalid("TOO_LARGE") as caught:
        read(stored.uri, s3_url, max_bytes=4999)
    assert "5,000" in caught[0].message


def test_other_bytes_than_were_enqueued_are_a_change(s3_url: str) -> None:
    stored = open_store(STORE, options(s3_url)).put_bytes([CONTENT], MIB)
    with refused(FailureType.STORAGE_UNAVAILABLE, "SOURCE_CHANGED"):
        read(stored.uri, s3_url, expected_sha256="0" * 64)


def test_more_than_the_limit_is_never_sent(server: Server) -> None:
    with invalid("TOO_LARGE"):
        open_store(STORE, options(server.url)).put_bytes([b"x" * 100, b"y"], 100)
    assert server.requests == []
