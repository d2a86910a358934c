"""Which statuses a document may go between, by raw UPDATE as the application role."""

from itertools import product

import pytest
from sqlalchemy import Connection

from domain.statuses import DocumentStatus, VersionStatus
from tests.database.lifecycle import (
    Indexing,
    cancel,
    claim,
    complete,
    delete,
    fail,
    retry,
    set_current,
    to_chunking,
    to_embedding,
    to_storing,
    upload,
)
from tests.database.refusals import commit_checks, one, refused, refused_at_commit, run
from tests.database.states import document_in, version_in

D = DocumentStatus

# What a bare UPDATE of the status lacks: the rows that must change with it in the same transaction.
COMPANY_MISSING = {
    (D.PENDING, D.INDEXED): "documents_current_is_complete",
    (D.PENDING, D.FAILED): "documents_stopped_has_no_live_job",
    (D.PENDING, D.CANCELLED): "documents_stopped_has_no_live_job",
    (D.PENDING, D.DELETED): "documents_stopped_has_no_live_job",
    (D.INDEXED, D.DELETED): "documents_deleted_have_no_content",
    (D.FAILED, D.PENDING): "documents_pending_has_live_job",
    (D.FAILED, D.DELETED): "documents_deleted_have_no_content",
    (D.CANCELLED, D.PENDING): "documents_pending_has_live_job",
    (D.CANCELLED, D.DELETED): "documents_deleted_have_no_content",
}


def set_status(connection: Connection, of: Indexing, status: DocumentStatus) -> None:
    run(
        connection,
        "UPDATE documents SET status = :status, current_version_id = :current WHERE id = :id",
        status=status,
        current=of.version_id if status == D.INDEXED else None,
        id=of.document_id,
    )


def status_of(connection: Connection, of: Indexing) -> str:
    return str(one(connection, "SELECT status FROM documents WHERE id = :id", id=of.document_id))


@pytest.mark.parametrize(
    ("old", "new"), [pair for pair in product(D, D) if pair[0] != pair[1] and pair not in COMPANY_MISSING]
)
def test_a_document_goes_no_other_way(connection: Connection, old: DocumentStatus, new: DocumentStatus) -> None:
    document = document_in(connection, old)
    with refused(connection, "documents_transition_known"):
        set_status(connection, document, new)


@pytest.mark.parametrize(("old", "new"), COMPANY_MISSING)
def test_a_document_does_not_go_alone(connection: Connection, old: DocumentStatus, new: DocumentStatus) -> None:
    document = document_in(connection, old)
    with refused_at_commit(connection, COMPANY_MISSING[old, new]):
        set_status(connection, document, new)


@pytest.mark.parametrize("status", D)
def test_a_document_may_be_written_with_the_status_it_has(connection: Connection, status: DocumentStatus) -> None:
    document = document_in(connection, status)
    set_status(connection, document, status)
    commit_checks(connection)


def test_a_document_is_indexed_with_its_first_version(connection: Connection) -> None:
    document = version_in(connection, VersionStatus.STORING)
    complete(connection, document)
    commit_checks(connection)
    assert status_of(connection, document) == D.INDEXED


@pytest.mark.parametrize(("end", "status"), [(fail, D.FAILED), (cancel, D.CANCELLED)])
def test_a_document_stops_with_its_last_live_job(connection: Connection, end: object, status: DocumentStatus) -> None:
    document = version_in(connection, VersionStatus.PARSING)
    assert callable(end)
    end(connection, document)
    commit_checks(connection)
    assert status_of(connection, document) == status


@pytest.mark.parametrize("status", [D.FAILED, D.CANCELLED])
def test_a_stopped_document_waits_again_with_a_new_version(connection: Connection, status: DocumentStatus) -> None:
    document = document_in(connection, status)
    upload(connection, document.document_id)
    commit_checks(connection)
    assert status_of(connection, document) == D.PENDING


@pytest.mark.parametrize("status", [D.FAILED, D.CANCELLED])
def test_a_stopped_document_waits_again_with_a_retried_version(connection: Connection, status: DocumentStatus) -> None:
    document = document_in(connection, status)
    retry(connection, document)
    commit_checks(connection)
    assert status_of(connection, document) == D.PENDING


@pytest.mark.parametrize("status", [D.PENDING, D.INDEXED, D.FAILED, D.CANCELLED])
def test_any_document_is_deleted_with_its_content_and_its_live_jobs(
    connection: Connection, status: DocumentStatus
) -> None:
    document = document_in(connection, status)
    if status == D.PENDING:
        cancel(connection, document)
    delete(connection, document)
    commit_checks(connection)
    assert status_of(connection, document) == D.DELETED


def test_the_pointer_moves_to_a_newer_version(connection: Connection) -> None:
    old = version_in(connection, VersionStatus.INDEXED)
    new = version_in(connection, VersionStatus.INDEXED, document_id=old.document_id)
    assert (
        one(connection, "SELECT current_version_id FROM documents WHERE id = :id", id=old.document_id) == new.version_id
    )


def test_the_pointer_never_moves_back(connection: Connection) -> None:
    old = version_in(connection, VersionStatus.INDEXED)
    version_in(connection, VersionStatus.INDEXED, document_id=old.document_id)
    with refused(connection, "documents_current_never_goes_back"):
        set_current(connection, old)


def test_the_pointer_is_dropped_only_by_a_deletion(connection: Connection) -> None:
    document = document_in(connection, D.INDEXED)
    with refused(connection, "documents_current_never_dropped"):
        run(connection, "UPDATE documents SET current_version_id = NULL WHERE id = :id", id=document.document_id)


def test_an_older_version_completes_behind_a_newer_one(connection: Connection) -> None:
    old = version_in(connection, VersionStatus.PARSING)
    new = claim(connection, upload(connection, old.document_id))
    for version in (new, old):
        to_chunking(connection, version)
        to_embedding(connection, version)
        to_storing(connection, version)
        complete(connection, version)
        commit_checks(connection)
    assert (
        one(connection, "SELECT current_version_id FROM documents WHERE id = :id", id=old.document_id) == new.version_id
    )
