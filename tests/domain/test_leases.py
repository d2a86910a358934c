"""Renewing leases: what holds goes on, what expired is never revived, and nobody is waited for."""

from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import Connection, text

from domain.begin import begin_stage
from domain.cancel import cancel_document
from domain.claim import claim_jobs
from domain.held import Claim
from domain.lease import extend_leases
from domain.release import release_attempt
from domain.statuses import Task, VersionStatus
from tests.conftest import Connect
from tests.domain.indexing import Indexing
from tests.domain.rows import one, other_token
from tests.domain.statements import executed

HOUR = timedelta(hours=1)


def left(connection: Connection, claim: Claim) -> timedelta:
    found = one(
        connection, "SELECT lease_expires_at - clock_timestamp() FROM embedding_jobs WHERE id = :id", id=claim.job_id
    )
    assert isinstance(found, timedelta)
    return found


def test_a_run_lease_is_renewed_from_now_on(indexing: Indexing, connection: Connection) -> None:
    indexing.upload()
    claim = indexing.bring_to(VersionStatus.PARSING).claim
    assert extend_leases(connection, [claim], HOUR) == []
    assert HOUR - timedelta(minutes=1) < left(connection, claim) <= HOUR
    indexing.check_commit()


def test_a_renewal_never_shortens_a_lease(indexing: Indexing, connection: Connection) -> None:
    indexing.upload()
    claim = indexing.bring_to(VersionStatus.PARSING).claim
    extend_leases(connection, [claim], HOUR)
    assert extend_leases(connection, [claim], timedelta(seconds=1)) == []
    assert left(connection, claim) > HOUR / 2


def test_a_claim_that_waits_for_its_stage_keeps_its_dispatch_lease(indexing: Indexing, connection: Connection) -> None:
    indexing.upload()
    claim = indexing.claim().claim
    assert extend_leases(connection, [claim], HOUR) == []
    assert left(connection, claim) < timedelta(minutes=11)


def test_an_expired_lease_is_lost_and_not_revived(indexing: Indexing, connection: Connection) -> None:
    indexing.upload()
    claimed = indexing.claim()
    begin_stage(connection, claimed.claim, Task.PARSE, indexing.worker_id, timedelta(microseconds=1))
    assert extend_leases(connection, [claimed.claim], HOUR) == [claimed.claim]
    assert left(connection, claimed.claim) < timedelta(0)


def test_every_way_to_lose_a_claim_is_told(indexing: Indexing, connection: Connection) -> None:
    uploads = [indexing.upload(f"{number}.txt") for number in range(5)]
    cancelled, released, failed, completed, held = (indexing.bring_to(VersionStatus.STORING) for _ in uploads)
    cancel_document(connection, cancelled.document_id)
    release_attempt(connection, released.claim)
    indexing.fail(failed)
    indexing.complete(completed)
    wrong_token = replace(held.claim, token=other_token())
    wrong_worker = replace(held.claim, worker_id=held.claim.worker_id + 1)
    unknown = replace(held.claim, job_id=held.claim.job_id + 1)
    lost = [job.claim for job in (cancelled, released, failed, completed)]
    assert extend_leases(connection, [*lost, held.claim], HOUR) == lost
    for other in (wrong_token, wrong_worker, unknown):
        assert extend_leases(connection, [other], HOUR) == [other]


def test_the_claim_of_a_job_that_was_claimed_again_is_lost_and_the_new_one_is_not(
    indexing: Indexing, connection: Connection
) -> None:
    indexing.upload()
    old = indexing.bring_to(VersionStatus.PARSING).claim
    release_attempt(connection, old)
    new = indexing.bring_to(VersionStatus.PARSING).claim
    assert extend_leases(connection, [old, new], HOUR) == [old]


def test_no_claims_ask_the_database_nothing(indexing: Indexing, connection: Connection) -> None:
    with executed(connection) as statements:
        assert extend_leases(connection, [], HOUR) == []
    assert statements == []


def test_many_leases_are_renewed_in_two_statements(indexing: Indexing, connection: Connection) -> None:
    for number in range(50):
        indexing.upload(f"{number}.txt")
    claimed = claim_jobs(connection, indexing.worker_id, 50, list(Task))
    for job in claimed:
        indexing.begin(job)
    claims = [job.claim for job in claimed]
    with executed(connection) as statements:
        assert extend_leases(connection, claims, HOUR) == []
    assert len(statements) == 2
    assert one(connection, "SELECT min(lease_expires_at) - clock_timestamp() FROM embedding_jobs") > HOUR / 2


@pytest.mark.race
def test_a_renewal_waits_for_nobody_and_renews_the_others(committed: Indexing, connect: Connect) -> None:
    for number in range(2):
        committed.upload(f"{number}.txt")
    busy, free = (committed.bring_to(VersionStatus.PARSING).claim for _ in range(2))
    committed.connection.commit()
    blocker, renewing = connect(), connect()
    blocker.execute(text("SELECT FROM embedding_jobs WHERE id = :id FOR NO KEY UPDATE"), {"id": busy.job_id})
    renewing.execute(text("SET LOCAL lock_timeout = '1ms'"))
    assert extend_leases(renewing, [busy, free], HOUR) == []
    renewing.commit()
    assert left(renewing, busy) < HOUR / 2 < left(renewing, free)
