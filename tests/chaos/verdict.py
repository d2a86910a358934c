"""What must be true after any chaos; each function returns what is not."""

from collections.abc import Iterator, Sequence

from domain.invariants import check_invariants
from stages.embed import Embedder, open_embedder
from tests.chaos.director import Feeder, Played
from tests.chaos.fleet import Fleet
from tests.chaos.provider import MoodyProvider
from tests.end_to_end.conftest import System

AFTERMATH = 30.0  # s after a harm is mended in which a failure may still come from it


class Piece:
    """A chunk as a batch sees it."""

    def __init__(self, token_count: int) -> None:
        self.token_count = token_count


def problems(
    system: System, provider: MoodyProvider, fleet: Fleet, feeder: Feeder, played: Sequence[Played]
) -> list[str]:
    """Everything that is wrong at the end, one line each."""
    with system.engine.connect() as connection:
        broken = [f"invariant broken: {violation}" for violation in check_invariants(connection, newest=None)]
    return [
        *broken,
        *(f"{death.name} ended by itself with code {death.code}: {death.said}" for death in fleet.deaths),
        *lost(system, feeder),
        *unfinished(system),
        *falsely_ended(system, feeder, provider),
        *unexplained(system, played),
        *twice(system),
        *overcharged(system, provider),
    ]


def lost(system: System, feeder: Feeder) -> Iterator[str]:
    """Every accepted document is there, with as many versions as were uploaded."""
    found = dict(
        system.rows(
            "SELECT d.name, count(*) FROM documents d JOIN document_versions v ON v.document_id = d.id GROUP BY d.name"
        )
    )
    for name in feeder.uploads:
        if found.get(name) != feeder.versions.get(name, 1):
            yield f"{name}: {found.get(name)} versions of {feeder.versions.get(name, 1)}"


def unfinished(system: System) -> Iterator[str]:
    for name, status in system.rows("SELECT name, status FROM documents WHERE status NOT IN ('INDEXED', 'FAILED')"):
        yield f"{name} is {status}"


def falsely_ended(system: System, feeder: Feeder, provider: MoodyProvider) -> Iterator[str]:
    """A version FAILED for its true reason, or is INDEXED and is what was uploaded."""
    ended = system.rows(
        "SELECT d.name, v.version_no, v.status, j.last_failure_type, j.last_failure_reason, j.retry_count, "
        "j.max_retry_count, t.text FROM document_versions v JOIN documents d ON d.id = v.document_id "
        "JOIN embedding_jobs j ON j.version_id = v.id "
        "LEFT JOIN parsed_texts t ON t.version_id = v.id"
    )
    for name, version_no, status, kind, reason, retries, allowed, text in ended:
        number, what = name.split(".")[0], f"{name} version {version_no}: {status} {kind} {reason}"
        mark = f"chaos-{number}v{version_no}"
        expected = feeder.uploads.get(name)
        if status == "INDEXED":
            if expected is not None or (name in feeder.versions and (text is None or mark not in text)):
                yield f"{what}: not what was uploaded"
        elif expected is not None:
            if (kind, reason) != ("DOCUMENT_CONTENT_INVALID", expected):
                yield f"{what}, and its true reason is {expected}"
        elif kind == "EMBEDDING_RESULT_INVALID":
            if (mark if name in feeder.versions else "sample") not in provider.duped:
                yield f"{what}: it was never answered nonsense"
        elif retries != allowed:
            yield f"{what} after {retries} retries of {allowed}"


def unexplained(system: System, played: Sequence[Played]) -> Iterator[str]:
    """Every failed attempt follows a harm that can cause it, and a clock that is wrong causes none."""
    failed = system.rows(
        "SELECT a.id, d.name, a.failed_stage, a.failure_type, a.failure_reason, a.error_message, "
        "extract(epoch FROM a.finished_at)::float "
        "FROM indexing_attempts a JOIN embedding_jobs j ON j.id = a.job_id JOIN documents d ON d.id = j.document_id "
        "WHERE a.failure_type NOT IN ('DOCUMENT_CONTENT_INVALID', 'EMBEDDING_RESULT_INVALID')"
    )
    for attempt, name, stage, kind, reason, message, at in failed:
        if not any(
            {kind, reason} & one.act.explains
            and one.began_at - 1 <= at <= max(one.mended_at + AFTERMATH, one.over_at + 1)
            for one in played
        ):
            yield f"attempt {attempt} of {name}: {stage} {kind} {reason}, and nothing explains it: {message}"


def twice(system: System) -> Iterator[str]:
    """No chunk and no embedding twice, none missing."""
    for version, chunks, places, embeddings in system.rows(
        "SELECT v.id, count(c.id), count(DISTINCT (c.char_start, c.char_end)), count(DISTINCT e.chunk_id) "
        "FROM document_versions v LEFT JOIN chunks c ON c.version_id = v.id "
        "LEFT JOIN embeddings e ON e.chunk_id = c.id AND e.model_id = v.model_id "
        "WHERE v.status = 'INDEXED' GROUP BY v.id HAVING count(c.id) <> count(DISTINCT (c.char_start, c.char_end)) "
        "OR count(c.id) <> count(DISTINCT e.chunk_id) OR count(c.id) = 0"
    ):
        yield f"version {version}: {chunks} chunks at {places} places, {embeddings} embeddings"


def allowed_requests(system: System) -> dict[str, int]:
    """By document mark: one request a batch, and one more for each attempt that ended before it stored its batch."""
    embedder = open_embedder("openai", "counting", 16)
    allowed: dict[str, int] = {}
    for name, version_no, token_counts, spoiled in system.rows(
        "SELECT d.name, v.version_no, "
        "(SELECT array_agg(token_count ORDER BY chunk_no) FROM chunks WHERE version_id = v.id), "
        "(SELECT count(*) FROM indexing_attempts a JOIN embedding_jobs j ON j.id = a.job_id WHERE j.version_id = v.id "
        " AND (a.failed_stage = 'EMBEDDING' OR a.status = 'RELEASED')) "
        "FROM document_versions v JOIN documents d ON d.id = v.document_id"
    ):
        number = name.split(".")[0]
        mark = f"chaos-{number}v{version_no}" if number.isdigit() else "sample"
        allowed[mark] = allowed.get(mark, 0) + batches(embedder, token_counts or []) + spoiled
    return allowed


def batches(embedder: Embedder, token_counts: Sequence[int]) -> int:
    return sum(1 for _ in embedder.batches(Piece(count) for count in token_counts))


def overcharged(system: System, provider: MoodyProvider) -> Iterator[str]:
    allowed = allowed_requests(system)
    for mark, requests in provider.asked.items():
        if requests > allowed.get(mark, 0):
            yield f"{mark}: {requests} requests to the provider, {allowed.get(mark, 0)} are batches and retries"
