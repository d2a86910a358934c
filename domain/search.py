"""Find the passages of an owner's current versions that are nearest to a query."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pgvector.sqlalchemy import HALFVEC, VECTOR
from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Connection,
    Float,
    Integer,
    Select,
    and_,
    bindparam,
    cast,
    func,
    literal,
    select,
    union_all,
)

from domain.begin import Model
from domain.errors import InvalidRequest, NotFound
from domain.statuses import EmbeddingStatus
from domain.tables import chunks, documents, embeddings, inline, models, versions

EXACT_UP_TO = 20_000
"""ACTIVE embeddings of an owner that are compared one by one; above it the model's HNSW index is asked."""

LARGEST_LIMIT = 1000

# Measured with 100,000 ACTIVE vectors of 64 dimensions, 30,000 of them the owner's, against the exact answer.
INDEX_SCAN = {
    # The most there is: 50 ms, and at limit 10 everything is found, also for queries far from every passage, of
    # which 200 finds 87 %. At limit 300 it is 86 %, as far as the graph leads.
    "hnsw.ef_search": "1000",
    # Goes on until the limit is full: other owners' passages are filtered out on the way. Not strict_order, which
    # drops what it finds too late for its place: of 1,000 passages 10 %, against 3 %. The order is made good after.
    "hnsw.iterative_scan": "relaxed_order",
    "hnsw.max_scan_tuples": "200000",
    "hnsw.scan_mem_multiplier": "8",
}


@dataclass(frozen=True, slots=True)
class Passage:
    """A chunk of a document's current version.

    ``score`` is the cosine similarity to the query, from -1 to 1; scores of different models do not compare.
    """

    document_id: int
    version_id: int
    version_no: int
    name: str
    chunk_no: int
    page_no: int | None
    text: str
    score: float
    model_id: int
    model_name: str


def models_in_use(connection: Connection, owner_id: str) -> list[Model]:
    """The models that the owner's current versions were embedded by: a query is embedded once for each."""
    searchable = (
        select(embeddings.c.chunk_id)
        .join(versions, versions.c.id == embeddings.c.version_id)
        .join(
            documents,
            and_(documents.c.id == versions.c.document_id, documents.c.current_version_id == versions.c.id),
        )
        .where(active_of(owner_id), embeddings.c.model_id == models.c.id)
        .exists()
    )
    rows = connection.execute(select(models).where(searchable).order_by(models.c.id))
    return [Model(row.id, row.name, row.dimensions) for row in rows]


def search(
    connection: Connection, owner_id: str, queries: Mapping[int, Sequence[float]], limit: int = 10
) -> list[Passage]:
    """The owner's nearest passages: min(``limit``, what there is), of current versions only, the nearest first.

    One statement, so one snapshot: a document that gets a new version meanwhile is found by the old version or by
    the new one, never by both or neither. Up to 20,000 ACTIVE embeddings of the owner every one is compared; above
    that the model's index is asked, and where it gives less than ``limit``, every one is compared after all.

    Passages of several models are merged by their ranks, the first of each model, then the second of each: a
    similarity of 0.8 means one thing to one model and another to the next, while ranks compare. Each passage has
    one model, so nothing is counted twice and no two documents' passages are taken for one.

    Sets ``hnsw.*`` parameters for the rest of the transaction where it asks an index.

    Args:
        queries: the query as each model embeds it, by model id; see ``models_in_use``.

    Raises:
        NotFound: no such model.
        InvalidRequest: a vector has not its model's dimensions, is not finite or is all zero; ``limit`` is not
            from 1 to 1,000.
    """
    if not 1 <= limit <= LARGEST_LIMIT:
        raise InvalidRequest(f"limit must be from 1 to {LARGEST_LIMIT}: {limit}")
    if not queries:
        return []
    asked = read_models(connection, queries)
    by_index = [model for model in asked if has_index(model) and not is_small(connection, owner_id, model)]
    found = nearest(connection, owner_id, queries, asked, by_index, limit)
    short = [model for model in by_index if sum(row.model_id == model.id for row in found) < limit]
    if short:
        found = nearest(
            connection, owner_id, queries, asked, [model for model in by_index if model not in short], limit
        )
    return merge(found, limit)


def read_models(connection: Connection, queries: Mapping[int, Sequence[float]]) -> list[Model]:
    rows = {row.id: row for row in connection.execute(select(models).where(models.c.id.in_(queries)))}
    for model_id, vector in queries.items():
        if model_id not in rows:
            raise NotFound("model", model_id)
        row = rows[model_id]
        if len(vector) != row.dimensions:
            raise InvalidRequest(f"the query for {row.name} must have {row.dimensions} dimensions, not {len(vector)}")
        if not 0 < math.hypot(*vector) < math.inf:
            raise InvalidRequest(f"the query for {row.name} must be finite and not all zero")
    return [Model(row.id, row.name, row.dimensions) for _, row in sorted(rows.items())]


def has_index(model: Model) -> bool:
    """Whether HNSW can hold the model's vectors: as they are up to 2,000 dimensions, as halfvec up to 4,000."""
    return model.dimensions <= 4000


def is_small(connection: Connection, owner_id: str, model: Model) -> bool:
    few = select(embeddings.c.chunk_id).where(active_of(owner_id, model)).limit(EXACT_UP_TO + 1).subquery()
    return connection.execute(select(func.count()).select_from(few)).scalar_one() <= EXACT_UP_TO


def active_of(owner_id: str, model: Model | None = None) -> ColumnElement[bool]:
    # Model and status are written into the statement: both are in the predicates of the partial indexes.
    active = and_(embeddings.c.owner_id == owner_id, embeddings.c.status == inline(EmbeddingStatus.ACTIVE))
    if model is None:
        return active
    return and_(active, embeddings.c.model_id == literal(model.id, Integer, literal_execute=True))


def nearest(
    connection: Connection,
    owner_id: str,
    queries: Mapping[int, Sequence[float]],
    asked: Sequence[Model],
    by_index: Sequence[Model],
    limit: int,
) -> list[Passage]:
    """The nearest passages of each model, ``by_index`` through its index: by model, then the nearest first."""
    if by_index:
        connection.execute(select(*(func.set_config(name, value, True) for name, value in INDEX_SCAN.items())))
    found = union_all(
        *(
            # In brackets: each has its own order and limit.
            (nearest_by_index if model in by_index else nearest_of_all)(owner_id, model, unit(queries[model.id]), limit)
            .subquery()
            .select()
            for model in asked
        )
    ).subquery("found")
    rows = connection.execute(
        select(
            found,
            documents.c.id.label("document_id"),
            documents.c.name,
            versions.c.id.label("version_id"),
            versions.c.version_no,
            chunks.c.chunk_no,
            chunks.c.page_no,
            chunks.c.text,
            models.c.name.label("model_name"),
        )
        .join(chunks, chunks.c.id == found.c.chunk_id)
        .join(versions, versions.c.id == chunks.c.version_id)
        .join(documents, documents.c.id == versions.c.document_id)
        .join(models, models.c.id == found.c.model_id)
        .order_by(found.c.model_id, found.c.distance, documents.c.id, chunks.c.chunk_no)
    )
    return [
        Passage(
            document_id=row.document_id,
            version_id=row.version_id,
            version_no=row.version_no,
            name=row.name,
            chunk_no=row.chunk_no,
            page_no=row.page_no,
            text=row.text,
            score=1 - row.distance,
            model_id=row.model_id,
            model_name=row.model_name,
        )
        for row in rows
    ]


def nearest_by_index(owner_id: str, model: Model, query: list[float], limit: int) -> Select[Any]:
    # Word for word the expression of the model's index, which register_model makes.
    kind = (VECTOR if model.dimensions <= 2000 else HALFVEC)(model.dimensions)
    distance = cast(embeddings.c.embedding, kind).op("<=>", return_type=Float)(cast(parameter(model, query), kind))
    # OFFSET keeps this a test of each row that the index gives. As a join it was planned from the documents' side,
    # which reads and sorts all that the owner has.
    is_current = (
        select(documents.c.id)
        .join(versions, versions.c.document_id == documents.c.id)
        .where(versions.c.id == embeddings.c.version_id, documents.c.current_version_id == versions.c.id)
        .offset(0)
        .correlate(embeddings)
        .exists()
    )
    return (
        select(embeddings.c.model_id, embeddings.c.chunk_id, distance.label("distance"))
        .where(active_of(owner_id, model), is_current)
        .order_by(distance)
        .limit(limit)
    )


def nearest_of_all(owner_id: str, model: Model, query: list[float], limit: int) -> Select[Any]:
    # Without a cast: an expression that no index has, so that every vector is compared.
    distance = embeddings.c.embedding.op("<=>", return_type=Float)(cast(parameter(model, query), VECTOR))
    # OFFSET keeps this one read along the owner's index: document by document it would read STALE rows too.
    active = (
        select(embeddings.c.model_id, embeddings.c.chunk_id, embeddings.c.version_id, distance.label("distance"))
        .where(active_of(owner_id, model))
        .offset(0)
        .subquery(f"active_{model.id}")
    )
    return (
        select(active.c.model_id, active.c.chunk_id, active.c.distance)
        .join(
            documents,
            and_(documents.c.owner_id == owner_id, documents.c.current_version_id == active.c.version_id),
        )
        .order_by(active.c.distance, documents.c.id, active.c.chunk_id)
        .limit(limit)
    )


def parameter(model: Model, query: list[float]) -> BindParameter[Any]:
    return bindparam(f"query_{model.id}", query, VECTOR)


def unit(vector: Sequence[float]) -> list[float]:
    """The same direction at length 1, which no 32-bit float is too small or too large for."""
    length = math.hypot(*vector)
    return [value / length for value in vector]


def merge(found: Sequence[Passage], limit: int) -> list[Passage]:
    """By rank within the model; at equal rank the newest model first."""
    ranks: dict[int, int] = {}
    ranked = []
    for passage in found:
        rank = ranks[passage.model_id] = ranks.get(passage.model_id, 0) + 1
        ranked.append((rank, -passage.model_id, passage))
    ranked.sort(key=lambda entry: entry[:2])
    return [passage for _, _, passage in ranked[:limit]]
