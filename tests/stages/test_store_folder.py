import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from domain.failures import FailureType
from stages.store import StorageUriRefused, open_store, read_source

from .conftest import invalid, refused

MIB = 1024 * 1024
CONTENT = "환불 규정".encode()
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "the store"  # a space, which a URI has to escape
    folder.mkdir()
    return folder


def read(uri: str, root: Path, **expected: object) -> bytes:
    values: dict[str, object] = {"expected_sha256": None, "expected_size": None, "max_bytes": MIB} | expected
    return read_source(uri, root.as_uri(), **values).content  # type: ignore[arg-type]


def test_what_is_put_can_be_read_by_its_uri(root: Path) -> None:
    stored = open_store(root.as_uri()).put_bytes([CONTENT[:3], CONTENT[3:]], MIB)
    assert (stored.sha256, stored.size_bytes) == (SHA256, len(CONTENT))
    assert read(stored.uri, root, expected_sha256=SHA256.upper(), expected_size=len(CONTENT)) == CONTENT


def test_the_same_bytes_are_kept_once_however_they_come(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "문서.txt"
    file.write_bytes(CONTENT)
    store = open_store(root.as_uri())
    assert store.put_file(file) == store.put_bytes([CONTENT], MIB) == store.put_file(file)
    assert [path.name for path in root.rglob("*") if path.is_file()] == [SHA256]


def test_a_store_is_made_at_its_first_put(tmp_path: Path) -> None:
    stored = open_store((tmp_path / "new" / "store").as_uri()).put_bytes([CONTENT], MIB)
    assert read(stored.uri, tmp_path / "new" / "store") == CONTENT


def test_a_file_cut_short_by_a_crash_is_replaced_when_its_content_comes_again(root: Path) -> None:
    store = open_store(root.as_uri())
    path = root / SHA256[:2] / SHA256
    path.parent.mkdir()
    path.write_bytes(CONTENT[:4])
    store.put_bytes([CONTENT], MIB)
    assert path.read_bytes() == CONTENT


def test_more_than_the_limit_is_refused_with_the_number_and_leaves_nothing(root: Path) -> None:
    pieces = iter([b"a" * MIB, b"b", b"never asked for"])
    with invalid("TOO_LARGE") as caught:
        open_store(root.as_uri()).put_bytes(pieces, MIB)
    assert "1,048,576" in caught[0].message
    assert list(pieces) == [b"never asked for"]
    assert not [path for path in root.rglob("*") if path.is_file()]


def test_nothing_is_left_when_the_sender_breaks_off(root: Path) -> None:
    def broken() -> Iterator[bytes]:
        yield b"first"
        raise ConnectionResetError("gone")

    with refused(FailureType.STORAGE_UNAVAILABLE):
        open_store(root.as_uri()).put_bytes(broken(), MIB)
    assert not [path for path in root.rglob("*") if path.is_file()]


def test_a_store_that_cannot_be_written_is_unavailable_and_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with refused(FailureType.STORAGE_UNAVAILABLE) as caught:
        open_store((tmp_path / "file" / "store").as_uri()).put_bytes([CONTENT], MIB)
    assert str(tmp_path / "file" / "store") in caught[0].message


def test_a_missing_file_is_missing_for_good(root: Path) -> None:
    with invalid("SOURCE_MISSING") as caught:
        read((root / "없음.pdf").as_uri(), root)
    assert "없음.pdf" in caught[0].message


def test_a_folder_is_no_document(root: Path) -> None:
    (root / "folder").mkdir()
    with invalid("SOURCE_MISSING"):
        read((root / "folder").as_uri(), root)


def test_a_store_that_is_not_there_is_unavailable_rather_than_all_its_files_missing(root: Path) -> None:
    absent = root / "not mounted"
    with refused(FailureType.STORAGE_UNAVAILABLE) as caught:
        read((absent / "a.pdf").as_uri(), absent)
    assert str(absent) in caught[0].message


@pytest.mark.parametrize("expected", [{"expected_size": 1}, {"expected_sha256": "0" * 64}])
def test_other_bytes_than_were_enqueued_are_a_change(root: Path, expected: dict[str, object]) -> None:
    stored = open_store(root.as_uri()).put_bytes([CONTENT], MIB)
    with refused(FailureType.STORAGE_UNAVAILABLE, "SOURCE_CHANGED") as caught:
        read(stored.uri, root, **expected)
    assert stored.uri in caught[0].message


def test_a_document_over_the_limit_is_not_read_and_both_numbers_are_told(root: Path) -> None:
    stored = open_store(root.as_uri()).put_bytes([b"x" * 5000], MIB)
    with invalid("TOO_LARGE") as caught:
        read(stored.uri, root, max_bytes=4999)
    assert "5,000" in caught[0].message
    assert "4,999" in caught[0].message


def test_a_file_below_the_root_may_be_named_by_hand(root: Path) -> None:
    path = root / "넣은 파일 #1 100%.txt"
    path.write_bytes(CONTENT)
    open_store(root.as_uri()).refuse_outside(path.as_uri())
    assert read(path.as_uri(), root) == CONTENT


OUTSIDE = [
    "file:///etc/passwd",
    "file://{root}/../secret.txt",
    "file://{root}/%2e%2e/secret.txt",
    "file://{root}-other/a.txt",
    "file://other-host{root}/a.txt",
    "file:{relative}",
    "{root}/a.txt",
    "http://127.0.0.1/a.txt",
    "s3://documents/a.txt",
    "file://{root}/a%00b",
    "",
]


@pytest.mark.parametrize("uri", OUTSIDE)
def test_what_lies_outside_the_store_is_refused(root: Path, uri: str) -> None:
    (root.parent / "secret.txt").write_bytes(b"secret")
    uri = uri.format(root=root, relative=os.path.relpath(root))
    with pytest.raises(StorageUriRefused, match="not below the configured store"):
        open_store(root.as_uri()).refuse_outside(uri)
    with invalid("SOURCE_REFUSED"):
        read(uri, root)


def test_a_link_that_leads_out_of_the_store_is_refused(root: Path) -> None:
    (root.parent / "secret.txt").write_bytes(b"secret")
    (root / "link.txt").symlink_to(root.parent / "secret.txt")
    (root / "links").symlink_to(root.parent)
    (root / "ring").symlink_to(root / "ring")
    for inside in ("link.txt", "links/secret.txt", "ring"):
        with invalid("SOURCE_REFUSED"):
            read((root / inside).as_uri(), root)


def test_a_store_behind_a_link_works(root: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(root)
    assert read(open_store(link.as_uri()).put_bytes([CONTENT], MIB).uri, link) == CONTENT


@pytest.mark.parametrize("url", ["/folder", "file:relative", "http://host/folder", "ftp://host", "s3:bucket", "s3://"])
def test_a_store_is_a_folder_or_a_bucket(url: str) -> None:
    with pytest.raises(ValueError, match=r"is not (file:///absolute/path|s3://bucket/key)"):
        open_store(url)
