"""Of a completion and a failure that are reported at the same moment exactly one wins, over real connections."""

import asyncio
import random
from typing import Any

import httpx
import pytest
from sqlalchemy import Connection, text

from domain.statuses import VersionStatus
from tests.api.conftest import ADMIN_TOKEN, ApiProcess, HttpWorker, violations
from tests.conftest import Engines
from tests.domain.indexing import Indexing

PAIRS = 1_000
AT_ONCE = 8


def make_ready(connection: Connection, count: int) -> list[dict[str, Any]]:
    """Claimed versions that have everything stored: what is left is to complete or to fail them."""
    steps = Indexing(connection)
    ready = []
    for number in range(count):
        steps.upload(f"{number}.txt", f"owner-{number % 50}")
        claim = steps.bring_to(VersionStatus.STORING, ["passage"]).claim
        ready.append(
            {
                "path": f"/admin/indexing-jobs/{claim.job_id}/attempts/{claim.attempt_id}",
                "proof": {"workerId": claim.worker_id, "claimToken": str(claim.token)},
            }
        )
    return ready


@pytest.mark.race
def test_of_a_thousand_completions_and_failures_that_race_exactly_one_of_each_pair_wins(
    api_process: ApiProcess, engines: Engines
) -> None:
    with engines.app.begin() as connection:
        ready = make_ready(connection, PAIRS)

    async def race(client: httpx.AsyncClient, one: dict[str, Any], places: asyncio.Semaphore) -> tuple[int, int]:
        failure = {"failureType": "WORKER_INTERNAL_ERROR", "errorMessage": "lost the race"}
        async with places:
            reports = [
                client.post(f"{one['path']}/complete", json=one["proof"]),
                client.post(f"{one['path']}/fail", json=one["proof"] | failure),
            ]
            if random.random() < 0.5:  # noqa: S311 - which is sent first decides nothing
                reports.reverse()
            answers = await asyncio.gather(*reports)
        for answered in answers:
            if answered.status_code != 200:
                assert (answered.status_code, answered.json()["code"]) == (409, "ATTEMPT_CONFLICT"), answered.text
        by_path = {answered.url.path.rsplit("/", 1)[1]: answered for answered in answers}
        return by_path["complete"].status_code, by_path["fail"].status_code

    async def races() -> list[tuple[int, int]]:
        limits = httpx.Limits(max_connections=2 * AT_ONCE, max_keepalive_connections=2 * AT_ONCE)
        headers = {"Authorization": f"Bearer {ADMIN_TOKEN}"}
        async with httpx.AsyncClient(base_url=api_process.url, headers=headers, timeout=120, limits=limits) as client:
            places = asyncio.Semaphore(AT_ONCE)
            return await asyncio.gather(*(race(client, one, places) for one in ready))

    outcomes = asyncio.run(races())
    assert set(outcomes) <= {(200, 409), (409, 200)}
    completed = outcomes.count((200, 409))
    assert 0 < completed < PAIRS, "one side always won: nothing raced"
    with engines.app.connect() as connection:
        stored = dict(
            connection.execute(text("SELECT status, count(*) FROM indexing_attempts GROUP BY status")).all()  # type: ignore[arg-type]
        )
    assert stored == {"INDEXED": completed, "FAILED": PAIRS - completed}
    assert violations(engines) == []


@pytest.mark.race
def test_workers_that_claim_at_once_never_get_the_same_job(api_process: ApiProcess, engines: Engines) -> None:
    with engines.app.begin() as connection:
        steps = Indexing(connection)
        for number in range(200):
            steps.upload(f"{number}.txt")

    async def claim_all(number: int) -> list[int]:
        taken: list[int] = []
        async with httpx.AsyncClient(
            base_url=api_process.url, headers={"Authorization": f"Bearer {ADMIN_TOKEN}"}, timeout=120
        ) as client:
            registered = await client.post("/admin/workers", json={"name": f"claimer-{number}"})
            body = {"workerId": registered.json()["workerId"], "limit": 7, "tasks": ["parse", "embed"]}
            while True:
                answered = await client.post("/admin/indexing-jobs/claim", json=body)
                claims = answered.raise_for_status().json()["claims"]
                taken += [claim["jobId"] for claim in claims]
                if not claims:
                    return taken

    async def all_at_once() -> list[list[int]]:
        return await asyncio.gather(*(claim_all(number) for number in range(8)))

    taken = [job_id for jobs in asyncio.run(all_at_once()) for job_id in jobs]
    assert len(taken) == len(set(taken)) == 200


@pytest.mark.race
def test_equal_reports_that_race_get_equal_bytes(api_process: ApiProcess, engines: Engines) -> None:
    with engines.app.begin() as connection:
        steps = Indexing(connection)
        for number in range(20):
            steps.upload(f"{number}.txt")

    async def repeat(client: httpx.AsyncClient, worker: HttpWorker, claim: dict[str, Any]) -> set[bytes]:
        path = f"/admin/indexing-jobs/{claim['jobId']}/attempts/{claim['attemptId']}/fail"
        body = worker.proof(claim) | {"failureType": "WORKER_INTERNAL_ERROR", "errorMessage": "the same"}
        answers = await asyncio.gather(*(client.post(path, json=body) for _ in range(6)))
        return {answered.raise_for_status().content for answered in answers}

    async def all_at_once(worker: HttpWorker, claims: list[dict[str, Any]]) -> list[set[bytes]]:
        headers = {"Authorization": f"Bearer {ADMIN_TOKEN}"}
        async with httpx.AsyncClient(base_url=api_process.url, headers=headers, timeout=120) as client:
            return await asyncio.gather(*(repeat(client, worker, claim) for claim in claims))

    with api_process.admin() as admin:
        worker = HttpWorker(admin)
        answers = asyncio.run(all_at_once(worker, worker.claim(20)))
    assert [len(different) for different in answers] == [1] * 20
