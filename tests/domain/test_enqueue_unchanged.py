"""When an upload is unchanged: its bytes are searched already, or will be in the end."""

import pytest
from sqlalchemy import Connection

from domain.cancel import cancel_document
from domain.complete import complete_attempt
from domain.enqueue import Enqueued, Upload, enqueue_document, enqueue_documents, register_model
from domain.failures import FailureType
from domain.statuses import VersionStatus
from tests.domain.indexing import Indexing
from tests.domain.rows import count

OLD, NEW = "0" * 63 + "1", "0" * 63 + "2"


def upload(indexing: Indexing, sha256: str | None, force: bool = False, model_id: int | None = None) -> Enqueued:
    return enqueue_document(
        indexing.connection,
        Upload("ann", "report.txt", "file:///report.txt", sha256, force=force),
        model_id or indexing.model_id,
    )


@pytest.mark.parametrize(
    "stage",
    [
        None,
        VersionStatus.PARSING,
        VersionStatus.CHUNKING,
        VersionStatus.EMBEDDING,
        VersionStatus.STORING,
        VersionStatus.INDEXED,
    ],
)
def test_the_same_bytes_are_unchanged_at_every_stage_of_a_live_version_and_when_it_is_searched(
    indexing: Indexing, stage: VersionStatus | None
) -> None:
    first = upload(indexing, OLD)
    if stage is not None:
        indexing.bring_to(stage)
    again = upload(indexing, OLD)
    assert again == Enqueued(first.document_id, first.version_id, 1, None, unchanged=True)
    assert count(indexing.connection, "document_versions") == count(indexing.connection, "embedding_jobs") == 1
    indexing.check_commit()


def test_forced_bytes_are_indexed_again(indexing: Indexing) -> None:
    upload(indexing, OLD)
    indexing.bring_to(VersionStatus.INDEXED)
    again = upload(indexing, OLD, force=True)
    assert (again.version_no, again.unchanged) == (2, False)


def test_other_bytes_are_a_new_version(indexing: Indexing) -> None:
    upload(indexing, OLD)
    assert upload(indexing, NEW).version_no == 2


def test_bytes_of_unknown_hash_are_never_unchanged(indexing: Indexing) -> None:
    upload(indexing, OLD)
    assert upload(indexing, None).version_no == 2
    assert upload(indexing, None).version_no == 3


def test_the_hash_that_was_learned_when_the_bytes_were_read_counts_too(indexing: Indexing) -> None:
    first = upload(indexing, None)
    indexing.bring_to(VersionStatus.INDEXED)
    assert upload(indexing, "0" * 64).version_id == first.version_id


def test_another_model_is_a_change(indexing: Indexing) -> None:
    upload(indexing, OLD)
    indexing.bring_to(VersionStatus.INDEXED)
    other = register_model(indexing.connection, "test:other", 3)
    second = upload(indexing, OLD, model_id=other)
    assert (second.version_no, second.unchanged) == (2, False)
    assert upload(indexing, OLD, model_id=other).unchanged
    assert upload(indexing, OLD).version_no == 3, "back to the first model is a change again"


def test_the_bytes_of_a_failed_version_run_again(indexing: Indexing) -> None:
    upload(indexing, OLD)
    indexing.fail(indexing.bring_to(VersionStatus.PARSING), FailureType.DOCUMENT_CONTENT_INVALID)
    again = upload(indexing, OLD)
    assert (again.version_no, again.unchanged) == (2, False)
    assert again.job_id is not None


def test_the_bytes_of_a_cancelled_version_run_again(indexing: Indexing) -> None:
    first = upload(indexing, OLD)
    cancel_document(indexing.connection, first.document_id)
    assert upload(indexing, OLD).version_no == 2


def test_the_searched_bytes_are_unchanged_although_a_newer_version_failed(indexing: Indexing) -> None:
    first = upload(indexing, OLD)
    indexing.bring_to(VersionStatus.INDEXED)
    upload(indexing, NEW)
    indexing.fail(indexing.bring_to(VersionStatus.PARSING), FailureType.DOCUMENT_CONTENT_INVALID)
    assert upload(indexing, OLD).version_id == first.version_id
    assert upload(indexing, NEW).version_no == 3


def test_the_searched_bytes_are_a_new_version_while_others_are_being_built(indexing: Indexing) -> None:
    upload(indexing, OLD)
    indexing.bring_to(VersionStatus.INDEXED)
    second = upload(indexing, NEW)
    assert upload(indexing, NEW) == Enqueued(second.document_id, second.version_id, 2, None, unchanged=True)
    assert upload(indexing, OLD).version_no == 3


def test_an_older_version_that_is_still_being_built_is_not_what_will_be_searched(indexing: Indexing) -> None:
    upload(indexing, OLD)
    older = indexing.bring_to(VersionStatus.STORING)
    newer = upload(indexing, NEW)
    indexing.bring_to(VersionStatus.INDEXED)
    assert upload(indexing, NEW).version_id == newer.version_id
    assert upload(indexing, OLD).version_no == 3
    complete_attempt(indexing.connection, older.claim)
    assert upload(indexing, NEW).version_no == 4


def test_an_older_live_version_is_what_will_be_searched_when_the_newer_one_stopped(indexing: Indexing) -> None:
    first = upload(indexing, OLD)
    indexing.bring_to(VersionStatus.PARSING)
    upload(indexing, NEW)
    indexing.fail(indexing.bring_to(VersionStatus.PARSING), FailureType.DOCUMENT_CONTENT_INVALID)
    assert upload(indexing, OLD).version_id == first.version_id


def test_the_same_bytes_twice_in_one_call_are_one_version(indexing: Indexing, connection: Connection) -> None:
    same = Upload("ann", "report.txt", "file:///report.txt", OLD)
    first, second, third = enqueue_documents(connection, [same, same, same], indexing.model_id)
    assert (first.unchanged, second.unchanged, third.unchanged) == (False, True, True)
    assert first.version_id == second.version_id == third.version_id


def test_the_same_bytes_under_another_name_or_of_another_owner_are_their_own(
    indexing: Indexing, connection: Connection
) -> None:
    upload(indexing, OLD)
    for owner, name in (("ann", "copy.txt"), ("bob", "report.txt")):
        assert not enqueue_document(connection, Upload(owner, name, "file:///x", OLD), indexing.model_id).unchanged
