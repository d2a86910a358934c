"""Of a completion and a failure that are reported at the same moment exactly one wins, over real connections."""

import asyncio
import json
import re
from datetime import timedelta
from typing import Any

import httpx
import pytest
from sqlalchemy import Connection, text

from domain.claim import claim_and_begin
from domain.enqueue import Upload, enqueue_documents
from domain.held import Claim
from domain.statuses import Task
from tests.api.conftest import ADMIN_TOKEN, ApiProcess, HttpWorker, violations
from tests.conftest import Engines
from tests.domain.indexing import Indexing

PAIRS = 1_000
AT_ONCE = 8


READY = (
    "INSERT INTO parsed_texts (version_id, text, page_starts) SELECT id, 'passage', '{}' FROM document_versions",
    "UPDATE document_versions SET status = 'CHUNKING'",
    "INSERT INTO chunks (version_id, chunk_no, text, char_start, char_end, token_count, text_sha256) "
    "SELECT id, 0, 'passage', 0, 7, 1, encode(sha256('passage'), 'hex') FROM document_versions",
    "UPDATE document_versions SET status = 'EMBEDDING'",
    "INSERT INTO embeddings (chunk_id, model_id, version_id, owner_id, embedding) SELECT c.id, v.model_id, v.id, "
    "v.owner_id, '[1,0,0]' FROM chunks c JOIN document_versions v ON v.id = c.version_id",
    "UPDATE document_versions SET status = 'STORING'",
)
"""What a worker records of all versions at once; each statement passes the same triggers as the domain's own."""


def make_ready(connection: Connection, count: int) -> list[Claim]:
    """Claims of versions that have everything stored: what is left is to complete or to fail them."""
    steps = Indexing(connection)
    uploads = [Upload(f"owner-{number % 50}", f"{number}.txt", "file:///x") for number in range(count)]
    enqueue_documents(connection, uploads, steps.model_id)
    runs = claim_and_begin(connection, steps.worker_id, count, tuple(Task), timedelta(hours=1))
    for statement in READY:
        connection.execute(text(statement))
    return [run.claim for run in runs]


class Reporter:
    """One kept connection. A client of a few lines: the races are the server's, not the client's, to lose time on."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def __aenter__(self) -> "Reporter":
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()
        await self.writer.wait_closed()

    async def report(self, claim: Claim, what: str, **content: str) -> tuple[int, dict[str, Any]]:
        body = json.dumps({"workerId": claim.worker_id, "claimToken": str(claim.token)} | content)
        self.writer.write(
            f"POST /admin/indexing-jobs/{claim.job_id}/attempts/{claim.attempt_id}/{what} HTTP/1.1\r\n"
            f"Host: x\r\nAuthorization: Bearer {ADMIN_TOKEN}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n{body}".encode()
        )
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        length = re.search(r"(?i)content-length: (\d+)", head)
        assert length, head
        answered = await self.reader.readexactly(int(length[1]))
        return int(head.split(" ", 2)[1]), json.loads(answered)


async def races(port: int, claims: list[Claim]) -> list[tuple[int, int]]:
    """Report a completion and a failure of each claim at once; their statuses."""
    waiting = iter(claims)
    outcomes: list[tuple[int, int]] = []

    async def run_races() -> None:
        async with Reporter(port) as completing, Reporter(port) as failing:
            for claim in waiting:
                reports = [
                    completing.report(claim, "complete"),
                    failing.report(claim, "fail", failureType="WORKER_INTERNAL_ERROR", errorMessage="lost the race"),
                ]
                if claim.job_id % 2:  # which is sent first decides nothing
                    answers = list(reversed(await asyncio.gather(*reversed(reports))))
                else:
                    answers = await asyncio.gather(*reports)
                for status, body in answers:
                    assert status == 200 or (status, body["code"]) == (409, "ATTEMPT_CONFLICT"), body
                outcomes.append((answers[0][0], answers[1][0]))

    await asyncio.gather(*(run_races() for _ in range(AT_ONCE)))
    return outcomes


@pytest.mark.race
def test_of_a_thousand_completions_and_failures_that_race_exactly_one_of_each_pair_wins(
    api_process: ApiProcess, engines: Engines
) -> None:
    with engines.app.begin() as connection:
        claims = make_ready(connection, PAIRS)
    outcomes = asyncio.run(races(api_process.port, claims))
    assert len(outcomes) == PAIRS
    assert set(outcomes) <= {(200, 409), (409, 200)}
    completed = outcomes.count((200, 409))
    assert 0 < completed < PAIRS, "one side always won: nothing raced"
    with engines.app.connect() as connection:
        counted = connection.execute(text("SELECT status, count(*) FROM indexing_attempts GROUP BY status"))
        assert {status: count for status, count in counted} == {"INDEXED": completed, "FAILED": PAIRS - completed}
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
