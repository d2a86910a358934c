"""No secret and no text of a document in anything that people or programs are shown, also while all goes wrong."""

from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.end_to_end.conftest import FAULTY, System, text_of
from tests.end_to_end.provider import Answer, Provider

pytestmark = pytest.mark.end_to_end

SECRET_SETTINGS = {
    "ADMIN_TOKEN": "the-admins-token-of-32-characters-x",
    "JWT_SECRET": "the-secret-that-signs-tokens-of-users-x",
    "AWS_SECRET_ACCESS_KEY": "the-secret-key-of-the-bucket",
}
TABLES = ("indexing_attempts", "embedding_jobs", "indexing_events", "processing_failures", "notifications")


def refuse_with_secrets(provider: Provider, secrets: list[str], text: str) -> None:
    """Make the provider repeat in its refusals what it must not: keys, as a header and plain, and its input."""

    def answer(_: dict[str, object]) -> Answer:
        provider.refused += 1
        message = f"Authorization: Bearer {secrets[0]} is not allowed to embed, also {' '.join(secrets)}"
        return Answer(401 if provider.refused % 2 else 500, {"error": {"message": message, "input": text}}, {})

    provider.answer = answer  # type: ignore[method-assign, assignment]


def test_secrets_are_in_no_log_no_row_no_command_and_no_inspection(system: System) -> None:
    system.environment |= SECRET_SETTINGS
    urls = [system.environment[name] for name in ("DATABASE_URL", "DATABASE_OWNER_URL", "REDIS_URL")]
    secrets = ["the-providers-key", *SECRET_SETTINGS.values(), *(str(urlsplit(url).password) for url in urls)]
    secrets += [secret for secret in urls if "@" in secret]
    refuse_with_secrets(system.provider, secrets, text_of("a.txt")[:40])
    system.set_retry_delay(0.5)
    system.set_faults({"stage": "PARSING", "name": "b.txt", "action": "recurse", "times": 2})
    worker = system.start_worker("-c", "2", "-l", "debug", app=FAULTY)
    system.upload("a.txt", max_retry_count=2)
    system.upload("b.txt", max_retry_count=3)
    system.wait(lambda: system.provider.refused >= 2, "the provider has refused")
    system.servers.valkey.stop()  # what a broker and a database that are away make libraries say
    system.engine.dispose()
    system.servers.postgres.stop("immediate")
    wrong = {
        "DATABASE_URL": system.environment["DATABASE_URL"].replace(":5", ":1"),
        "REDIS_URL": system.environment["REDIS_URL"],
    }
    told = [system.command("documents", "status", "--json", **wrong), system.command("documents", "check")]
    system.wait(lambda: "the database cannot be used" in worker.said, "it has noticed")
    system.servers.postgres.start(system.servers.postgres.port)
    system.servers.valkey.start(system.servers.valkey.port)
    system.wait(lambda: set(system.jobs().values()) == {"FAILED"}, "both have failed")

    told += [
        system.command("report"),
        *(system.command("inspect", what) for what in ("conf", "stats", "registered", "active_queues")),
        *(system.command("documents", *words) for words in (("failures",), ("history", "1"), ("status", "1"))),
        system.command("documents", "status", EMBEDDING_DIMENSIONS="none"),
    ]
    shown = {f"the output of {' '.join(map(str, one.args[3:]))}": one.stdout + one.stderr for one in told}
    shown |= {f"the log {path.name}": path.read_text(errors="replace") for path in Path(system.folder).glob("*.log")}
    shown |= {table: str(system.rows(f"SELECT to_jsonb(t)::text FROM {table} t")) for table in TABLES}  # noqa: S608
    found = [(where, secret) for where, said in shown.items() for secret in secrets if secret in said]
    assert not found

    texts = [text[:30] for (text,) in system.rows("SELECT text FROM parsed_texts")]
    tokens = [str(token) for (token,) in system.rows("SELECT claim_token FROM indexing_attempts")]
    assert texts
    assert tokens
    leaks = {where: said for where, said in shown.items() if where not in ("embedding_jobs", "indexing_attempts")}
    found = [(where, secret) for where, said in leaks.items() for secret in (*texts, *tokens) if secret in said]
    assert not found
