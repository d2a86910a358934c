"""What somebody who reaches the broker can make a worker do: nothing but lose time."""

import base64
import json
import pickle
import uuid
from pathlib import Path
from typing import Any

import pytest
from kombu import Connection as Broker

from tests.end_to_end.conftest import System

pytestmark = pytest.mark.end_to_end


class Touch:
    """A pickle of this makes a file when it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def envelope(body: bytes, content_type: str = "application/json", **headers: Any) -> bytes:
    """A message as kombu keeps it in a list of Redis."""
    return json.dumps(
        {
            "body": base64.b64encode(body).decode(),
            "content-encoding": "utf-8" if content_type == "application/json" else "binary",
            "content-type": content_type,
            "headers": {"lang": "py", "task": "tasks.parse", "id": str(uuid.uuid4()), **headers},
            "properties": {
                "correlation_id": str(uuid.uuid4()),
                "delivery_mode": 2,
                "delivery_info": {"exchange": "", "routing_key": "parse"},
                "priority": 0,
                "body_encoding": "base64",
                "delivery_tag": str(uuid.uuid4()),
            },
        }
    ).encode()


def call(*arguments: Any) -> bytes:
    return json.dumps([arguments, {}, {}]).encode()


CLAIM: dict[str, Any] = {"claim": str(uuid.uuid4()), "attempt": 1, "worker": 1}
MESSAGES = {
    "no body that is JSON": envelope(b"\xff not json"),
    "a body of the wrong shape": envelope(b'{"a": 1}'),
    "a body in pickle": b"",  # made in the test
    "a body in YAML": envelope(b"!!python/object/apply:os.system ['true']", "application/x-yaml"),
    "a task that does not exist": envelope(call(1), task="os.system"),
    "a task of Celery itself": envelope(call([]), task="celery.backend_cleanup"),
    "no task at all": envelope(call(1), task=None),
    "a claim that nobody made": envelope(call(1), **CLAIM),
    "a claim of the wrong kind": envelope(call(1), claim=["x"], attempt={}, worker="none"),
    "a number beyond all columns": envelope(call(2**80), **CLAIM),
    "a job id that is a text": envelope(call("1; DROP TABLE documents"), **CLAIM),
    "too many arguments": envelope(call(1, 2, 3), **CLAIM),
    "a limit that is none": envelope(call(1), timelimit="ever", **CLAIM),
    "a limit of no numbers": envelope(call(1), timelimit=["soon", []], **CLAIM),
    "a limit of its own": envelope(call(1), timelimit=[1e9, 1e9], **CLAIM),
    "an id that is a list": envelope(call(1), id=["x"], **CLAIM),
    "no id": envelope(call(1), id=None, **CLAIM),
    "arguments that are no list": envelope(b'["x", 1, 2]', **CLAIM),
    "a task of the first protocol": envelope(b'{"task": "tasks.parse", "id": 1, "args": 2, "kwargs": 3}'),
    "an expiry that is no time": envelope(call(1), expires="tomorrow, perhaps", **CLAIM),
    "a time of its own": envelope(call(1), eta="1970-01-01T00:00:00", **CLAIM),
    "a document outside the store": envelope(call("owner", "x", "file:///etc/passwd"), task="tasks.enqueue_document"),
    "a document that cannot be stored": envelope(call("", "\0", 1, [], {}, -1), task="tasks.enqueue_document"),
}


def test_no_message_runs_foreign_code_ends_the_worker_or_keeps_it_from_its_work(system: System) -> None:
    harm = system.folder / "harm"
    messages = MESSAGES | {
        "a body in pickle": envelope(pickle.dumps([(1,), {}, {}, Touch(harm)]), "application/x-python-serialize")
    }
    worker = system.start_worker("-c", "1")
    with Broker(system.environment["REDIS_URL"]) as broker:
        channel: Any = broker.default_channel
        for queue in ("claim", "parse", "embed"):
            for message in messages.values():
                channel.client.lpush(queue, message)
        system.wait(
            lambda: not any(channel.client.llen(queue) for queue in ("claim", "parse", "embed")), "all were taken"
        )
    system.upload("a.txt")
    system.wait_until_all()
    assert worker.process.poll() is None, worker.said
    assert not harm.exists()
    assert system.attempts("a.txt") == [("INDEXED", None, None)]
    assert system.documents() == {"a.txt": "INDEXED"}


def test_what_is_no_message_at_all_costs_a_restart_at_most(system: System) -> None:
    """The library ends the process over it, with a code by which it is started again, and does not put it back."""
    with Broker(system.environment["REDIS_URL"]) as broker:
        channel: Any = broker.default_channel
        worker = system.start_worker("-c", "1")
        for number, rubbish in enumerate((b"rubbish", b"[]", b'{"body": 1}')):
            channel.client.lpush("parse", rubbish)
            system.wait(lambda: not channel.client.llen("parse"), "it was taken")
            system.upload(f"{number}.txt")
            done = {f"{before}.txt": "INDEXED" for before in range(number + 1)}
            system.wait(
                lambda worker=worker, done=done: worker.process.poll() is not None or system.jobs() == done,  # type: ignore[misc]
                "it ended or worked on",
            )
            if worker.process.poll() is not None:
                assert worker.process.poll() == 1
                worker = system.start_worker("-c", "1", name=f"worker-{number}")
    system.wait_until_all()
