"""PostgreSQL goes away under load: every caller is told to come again, and everything ends right by itself."""

import threading
import time
from collections import Counter
from typing import Any

import httpx

from embedded.servers import Servers
from tests.api.conftest import ApiProcess, HttpWorker, user_token, violations
from tests.conftest import Engines, WaitUntil
from tests.domain.indexing import Indexing


def again_until_answered(send: Any, statuses: "Counter[int]", limit: float = 90) -> httpx.Response:
    """Repeat an idempotent call as its 503s ask for."""
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        answered: httpx.Response = send()
        statuses[answered.status_code] += 1
        if answered.status_code != 503:
            return answered
        assert answered.headers["content-type"] == "application/problem+json"
        time.sleep(min(0.3, float(answered.headers["retry-after"])))
    raise AssertionError("the API did not recover")


def test_an_outage_is_told_with_503_and_idempotent_calls_repeated_across_it_end_right(
    api_process: ApiProcess, engines: Engines, servers: Servers, wait_until: WaitUntil
) -> None:
    documents, senders = 60, 4
    statuses: Counter[int] = Counter()
    failures: list[BaseException] = []
    progress = [0]
    with engines.app.begin() as connection:
        Indexing(connection)

    def work(number: int) -> None:
        """Upload, claim and end documents, each call again until it is answered."""
        try:
            with api_process.admin() as admin, api_process.client(user_token(f"owner-{number}")) as user:
                again_until_answered(lambda: user.get("/documents"), statuses)
                worker = HttpWorker.__new__(HttpWorker)
                worker.admin = admin
                registered = again_until_answered(
                    lambda: admin.post("/admin/workers", json={"name": f"worker-{number}"}), statuses
                )
                worker.id = registered.json()["workerId"]
                for document in range(documents // senders):
                    key = f"{number}-{document}"
                    files = {"file": (key, key.encode())}
                    accepted = again_until_answered(
                        lambda files=files, key=key: user.post(
                            "/documents", files=files, headers={"Idempotency-Key": key}
                        ),
                        statuses,
                    )
                    assert accepted.status_code == 202, accepted.text
                    claimed = again_until_answered(
                        lambda worker=worker: admin.post(
                            "/admin/indexing-jobs/claim", json={"workerId": worker.id, "limit": 1, "tasks": ["parse"]}
                        ),
                        statuses,
                    )
                    for claim in claimed.json()["claims"]:
                        first = again_until_answered(
                            lambda claim=claim: worker.fail(claim, "DOCUMENT_CONTENT_INVALID", "broken"), statuses
                        )
                        # The lease may have run out while the database was away: then the job is another's.
                        assert first.status_code in (200, 409), first.text
                        if first.status_code == 200:
                            assert worker.fail(claim, "DOCUMENT_CONTENT_INVALID", "broken").status_code in (200, 503)
                    progress[0] += 1
        except BaseException as error:  # noqa: BLE001 - told to the test's own thread
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(senders)]
    for thread in threads:
        thread.start()
    wait_until(lambda: progress[0] >= 6 or failures, 60)
    for mode in ("fast", "immediate"):
        servers.postgres.stop(mode)
        seen = statuses[503]
        wait_until(lambda seen=seen: statuses[503] >= seen + 4 or failures, 60)  # type: ignore[misc]
        with api_process.client() as anyone:
            assert anyone.get("/healthz").status_code == 200
            ready = anyone.get("/readyz")
            assert (ready.status_code, ready.json()["database"]) == (503, "away")
            assert "holdfast_database_up 0.0" in anyone.get("/metrics").text
        servers.postgres.start()
        before = progress[0]
        wait_until(lambda before=before: progress[0] > before or failures or not any(t.is_alive() for t in threads), 60)  # type: ignore[misc]
    for thread in threads:
        thread.join(120)
    assert not failures, failures
    assert set(statuses) <= {200, 202, 409, 503}, statuses
    assert statuses[503] >= 8

    with api_process.client() as anyone:
        wait_until(lambda: anyone.get("/readyz").status_code == 200)
    for number in range(senders):
        with api_process.client(user_token(f"owner-{number}")) as user:
            listed = user.get("/documents", params={"limit": 100}).json()["documents"]
            # Each once, although its upload was repeated.
            assert sorted(document["name"] for document in listed) == sorted(
                f"{number}-{document}" for document in range(documents // senders)
            )
    assert violations(engines) == []
