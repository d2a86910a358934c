"""One step of a walk: a transaction, and what it answered and left behind held to the model."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

from hypothesis.stateful import RuleBasedStateMachine
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from domain.begin import StageRun
from domain.claim import ClaimedJob
from domain.complete import AttemptCompleted
from domain.errors import ClaimLost, DomainError
from domain.fail import AttemptFailed
from domain.refusals import rule_of
from domain.workers import note_worker_seen
from tests.conftest import Engines
from tests.invariants import violations
from tests.model import rows
from tests.model.world import World

Expect = Callable[[World, Any], Any]

WORKERS: Sequence[tuple[tuple[str, ...], int]] = ((("parse", "embed"), 2), (("parse",), 1), (("embed",), 1))


class Walk(RuleBasedStateMachine):
    """The world as it should be, and connections to the database that should show it."""

    def __init__(self, engines: Engines) -> None:
        super().__init__()
        self.world = World.empty()
        self.superuser = engines.superuser.connect()
        self.connections = [engines.app.connect() for _ in WORKERS]
        self.turn = 0
        self.pace: list[int] = []
        self.last_event = 0

    def teardown(self) -> None:
        for connection in (*self.connections, self.superuser):
            connection.close()

    def force(self, sql: str, **parameters: object) -> None:
        """Move a row in time, as a superuser for whom no trigger fires."""
        self.superuser.execute(text("SET session_replication_role = replica"))
        self.superuser.execute(text(sql), parameters)
        self.superuser.commit()

    def step(self, act: Callable[[Connection], Any], expect: Expect, keep: bool = True) -> None:
        """One transaction: it must answer, and leave behind, what the model says."""
        self.show_signs_of_life()
        self.turn += 1
        connection = self.connections[self.turn % len(self.connections)]
        got = attempt_to(connection, act, keep)
        world = deepcopy(self.world)
        world.new_events = []
        try:
            expected = expect(world, got)
        except DomainError as error:
            expected, world = error, deepcopy(self.world)
            world.new_events = []
        assert answer(got) == answer(expected), (answer(got), answer(expected))
        if keep:
            self.world = world
        self.compare([] if not keep else world.new_events)

    def show_signs_of_life(self) -> None:
        """Put every worker's last sign of life where the model has it."""
        silent = [worker.id for worker in self.world.workers.values() if worker.silent]
        for worker_id in self.world.workers.keys() - set(silent):
            note_worker_seen(self.connections[0], worker_id)
        self.connections[0].commit()
        if silent:
            seen = "UPDATE workers SET last_seen_at = clock_timestamp() - interval '1 hour' WHERE id = ANY (:ids)"
            self.force(seen, ids=silent)

    def compare(self, new_events: list[tuple[Any, ...]]) -> None:
        connection = self.connections[-1]
        found = rows.read(connection)
        expected = self.world.rows()
        for table, there in expected.items():
            differ = [key for key in found[table].keys() | there.keys() if found[table].get(key) != there.get(key)]
            assert not differ, [(table, key, found[table].get(key), there.get(key)) for key in differ]
        events, self.last_event = rows.events_after(connection, self.last_event)
        assert sorted(events, key=str) == sorted(new_events, key=str), (events, new_events)
        found_violations = violations(connection)
        assert not found_violations, found_violations
        connection.rollback()


def attempt_to(connection: Connection, act: Callable[[Connection], Any], keep: bool) -> Any:
    try:
        got = act(connection)
        if keep:
            connection.commit()
        else:
            connection.execute(text("SET CONSTRAINTS ALL IMMEDIATE"))
    except (DomainError, DBAPIError) as error:
        got = error
    connection.rollback()
    return got


def answer(got: Any) -> Any:
    """An answer in the shape of the model's: plain values, an error as its type and reason, a refusal as its rule."""
    if isinstance(got, DBAPIError):
        return rule_of(got) or repr(got)
    if isinstance(got, DomainError):
        return type(got), got.reason if isinstance(got, ClaimLost) else None
    if isinstance(got, list):
        return [answer(one) for one in got]
    if isinstance(got, ClaimedJob):
        claim = got.claim
        counts = (got.attempt_no, got.retry_count, got.max_retry_count)
        return claim.job_id, claim.worker_id, got.task, got.stage, *counts
    if isinstance(got, StageRun):
        ids = (got.document_id, got.version_id, got.owner_id, got.name)
        return *ids, got.stage, got.attempt_no, got.retry_count
    if isinstance(got, AttemptCompleted):
        done = (got.document_id, got.version_id, got.version_no, got.current)
        return got.job_id, got.attempt_id, got.attempt_no, *done
    if isinstance(got, AttemptFailed):
        return (
            *(got.job_id, got.attempt_id, got.attempt_no, got.status, got.failed_stage, got.failure_type),
            *(got.failure_reason, got.error_message, got.retryable, got.outcome, got.retry_count),
            *(got.max_retry_count, got.next_retry_at and got.next_retry_at - got.failed_at),
        )
    return got
