from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import psycopg
import pytest
from psycopg import sql
from sqlalchemy import Connection, select, text

import domain.search
from domain.begin import Model
from domain.cancel import cancel_document
from domain.delete import delete_document
from domain.errors import InvalidRequest, NotFound
from domain.failures import FailureType
from domain.search import Passage, models_in_use, search
from domain.statuses import VersionStatus
from domain.tables import documents
from embedded.servers import Servers
from tests.conftest import TEMPLATE, Connect, Database, Engines
from tests.domain.indexing import Indexing
from tests.domain.statements import executed, plan

EAST, NORTH, UP = [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]
BETWEEN = [1.0, 1.0, 0.0]


@pytest.fixture
def indexing(connection: Connection) -> Indexing:
    return Indexing(connection)


def found(indexing: Indexing, query: Sequence[float] = EAST, owner_id: str = "ann", limit: int = 10) -> list[Passage]:
    return search(indexing.connection, owner_id, {indexing.model_id: query}, limit)


def texts(passages: Sequence[Passage]) -> list[str]:
    return [passage.text for passage in passages]


def test_passages_come_the_nearest_first_with_their_place_and_similarity(indexing: Indexing) -> None:
    indexed = indexing.index("보고서.txt", passages=["동쪽 ", "사이 ", "북쪽"], vectors=[EAST, BETWEEN, NORTH])
    passages = found(indexing)
    assert texts(passages) == ["동쪽 ", "사이 ", "북쪽"]
    assert [passage.score for passage in passages] == pytest.approx([1, 0.5**0.5, 0])
    first = passages[0]
    assert first == Passage(
        document_id=indexed.document_id,
        version_id=indexed.version_id,
        version_no=1,
        name="보고서.txt",
        chunk_no=0,
        page_no=1,
        text="동쪽 ",
        score=first.score,
        model_id=indexing.model_id,
        model_name="test:model-3",
    )


def test_korean_text_comes_back_as_it_was_also_beyond_the_basic_plane(indexing: Indexing) -> None:
    passage = "가나다 훈민정음 各 옛한글 ᄒᆞᆫ글 🇰🇷 'quoted' \\ % :name\n"
    indexing.index("한글.md", passages=[passage])
    assert texts(found(indexing)) == [passage]


def test_a_limit_beyond_what_there_is_gives_what_there_is(indexing: Indexing) -> None:
    indexing.index(passages=["a", "b", "c"])
    assert len(found(indexing, limit=1000)) == 3
    assert len(found(indexing, limit=2)) == 2


def test_an_owner_finds_his_own_passages_only(indexing: Indexing) -> None:
    indexing.index("of ann", "ann", ["ann's"])
    indexing.index("of bob", "bob", ["bob's"])
    assert texts(found(indexing, owner_id="ann")) == ["ann's"]
    assert found(indexing, owner_id="eve") == []


def test_the_same_text_of_two_documents_is_found_in_both_in_a_fixed_order(indexing: Indexing) -> None:
    for name in ("1", "2", "3"):
        indexing.index(name, passages=["same ", "same"])
    assert [(passage.name, passage.chunk_no) for passage in found(indexing)] == [
        (name, number) for name in ("1", "2", "3") for number in (0, 1)
    ]


def test_a_version_that_is_being_built_is_not_found_although_its_embeddings_are_active(indexing: Indexing) -> None:
    indexing.index("report", passages=["old"], content="1")
    indexing.upload("report", content="2")
    building = indexing.bring_to(VersionStatus.STORING, ["new"])
    indexing.upload("first version", content="3")
    indexing.bring_to(VersionStatus.STORING, ["not yet"])
    assert texts(found(indexing)) == ["old"]
    indexing.complete(building)
    assert texts(found(indexing)) == ["new"]


def test_a_failed_or_cancelled_new_version_leaves_the_old_one_found(indexing: Indexing) -> None:
    for content, name in (("1", "failed"), ("2", "cancelled")):
        indexing.index(name, passages=[f"old {name}"], content=content)
    indexing.upload("failed", content="3")
    indexing.fail(indexing.bring_to(VersionStatus.STORING, ["new"]), FailureType.DOCUMENT_CONTENT_INVALID)
    cancelled = indexing.upload("cancelled", content="4")
    indexing.bring_to(VersionStatus.STORING, ["new"])
    cancel_document(indexing.connection, cancelled.document_id)
    assert texts(found(indexing)) == ["old failed", "old cancelled"]


def test_a_deleted_document_is_not_found_by_the_next_search(indexing: Indexing) -> None:
    indexed = indexing.index()
    delete_document(indexing.connection, indexed.document_id)
    assert found(indexing) == []
    assert models_in_use(indexing.connection, "ann") == []


def test_a_model_is_in_use_once_a_version_of_it_is_searchable(indexing: Indexing) -> None:
    indexing.upload()
    claimed = indexing.bring_to(VersionStatus.STORING)
    assert models_in_use(indexing.connection, "ann") == []
    indexing.complete(claimed)
    assert models_in_use(indexing.connection, "ann") == [Model(indexing.model_id, "test:model-3", 3)]
    assert models_in_use(indexing.connection, "bob") == []


def test_passages_of_two_models_take_turns_by_their_rank(connection: Connection) -> None:
    three = Indexing(connection, 3)
    three.index("old", passages=["old 1 ", "old 2 ", "old 3"], vectors=[EAST, BETWEEN, NORTH])
    two = Indexing(connection, 2)
    two.index("new", passages=["new 1 ", "new 2"], vectors=[[1.0, 0.1], [0.1, 1.0]])
    queries = {three.model_id: EAST, two.model_id: [1.0, 0.0]}
    assert models_in_use(connection, "ann") == [
        Model(three.model_id, "test:model-3", 3),
        Model(two.model_id, "test:model-2", 2),
    ]
    assert texts(search(connection, "ann", queries)) == ["new 1 ", "old 1 ", "new 2", "old 2 ", "old 3"]
    assert texts(search(connection, "ann", queries, limit=3)) == ["new 1 ", "old 1 ", "new 2"]


@pytest.mark.parametrize(
    "query",
    [[1.0, 0.0], [1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0], [float("nan"), 0.0, 0.0], [float("inf"), 0.0, 0.0]],
)
def test_a_query_that_is_no_vector_of_its_model_is_refused(indexing: Indexing, query: list[float]) -> None:
    with pytest.raises(InvalidRequest, match="the query for test:model-3 must"):
        found(indexing, query)


@pytest.mark.parametrize("scale", [1e-300, 1e300])
def test_the_length_of_a_query_does_not_matter(indexing: Indexing, scale: float) -> None:
    indexing.index(passages=["east ", "north"], vectors=[EAST, NORTH])
    assert texts(found(indexing, [0.0, scale, 0.0])) == ["north", "east "]


@pytest.mark.parametrize("limit", [0, -1, 1001])
def test_a_limit_is_from_1_to_1000(indexing: Indexing, limit: int) -> None:
    with pytest.raises(InvalidRequest, match="limit must be from 1 to 1000"):
        found(indexing, limit=limit)


def test_an_unknown_model_is_not_found(connection: Connection) -> None:
    with pytest.raises(NotFound, match="model 999999999 does not exist"):
        search(connection, "ann", {999_999_999: EAST})


def test_no_query_finds_nothing(connection: Connection) -> None:
    assert search(connection, "ann", {}) == []


@pytest.mark.parametrize(("dimensions", "indexed"), [(2000, True), (2001, True), (4000, True), (4001, False)])
def test_the_index_is_used_up_to_4000_dimensions(
    connection: Connection, monkeypatch: pytest.MonkeyPatch, dimensions: int, indexed: bool
) -> None:
    indexing = Indexing(connection, dimensions)
    vectors = [[1.0, *[0.0] * (dimensions - 1)], [*[0.0] * (dimensions - 1), 1.0]]
    indexing.index(passages=["first ", "last"], vectors=vectors)
    monkeypatch.setattr(domain.search, "EXACT_UP_TO", 0)
    for way in ("enable_sort", "enable_seqscan", "enable_bitmapscan"):  # the table is too small for an index to pay
        connection.execute(text(f"SET LOCAL {way} = off"))
    with executed(connection) as statements:
        passages = found(indexing, vectors[1], limit=2)
    assert texts(passages) == ["last", "first "]
    assert (f"embeddings_of_model_{indexing.model_id}" in plan(connection, statements[-1])) is indexed


@pytest.mark.race
@pytest.mark.timeout(600)
def test_a_search_during_200_updates_is_never_empty_and_never_mixes_versions_or_models(connect: Connect) -> None:
    with connect() as connection:
        models = [Indexing(connection, 3), Indexing(connection, 2)]
        models[0].index("report", passages=["0 ", "0"])
        connection.commit()
    queries = {models[0].model_id: EAST, models[1].model_id: EAST[:2]}

    def update() -> None:
        with connect() as connection:
            for number in range(1, 201):
                indexing = models[number % 2]
                indexing.connection = connection
                indexing.index("report", passages=[f"{number} ", f"{number}"], content=str(number))
                connection.commit()

    seen = set()
    with ThreadPoolExecutor(1) as background, connect() as connection:
        updating = background.submit(update)
        while not updating.done():
            passages = search(connection, "ann", queries)
            connection.rollback()
            assert len(passages) == 2, passages
            assert len({(passage.version_id, passage.text.strip()) for passage in passages}) == 1, passages
            seen.add(passages[0].text.strip())
        updating.result()
        assert texts(search(connection, "ann", queries)) == ["200 ", "200"]
    assert len(seen) > 20, "the searches ran between the updates"


# Many owners and mostly STALE embeddings. The limit of the exact search is lowered so that less data will do.

OWNERS, DIMENSIONS, OF_LARGE, OF_SMALL, STALE_PER_ACTIVE = 200, 16, 2500, 20, 19
LARGE, SMALL = "owner 0", "owner 1"


@pytest.fixture(scope="module")
def crowd(servers: Servers) -> Iterator[Engines]:
    """200 owners, one of them large; of each embedding 19 STALE ones of superseded versions."""
    with servers.postgres.connect("postgres") as admin:
        servers.postgres.create_database(admin, "holdfast_crowd", template=TEMPLATE)
    with servers.postgres.connect("holdfast_crowd") as superuser:
        fill(superuser)
    yield Engines.of(Database.of(servers, "holdfast_crowd"))
    with servers.postgres.connect("postgres") as admin:
        admin.execute(sql.SQL("DROP DATABASE holdfast_crowd WITH (FORCE)"))


def fill(superuser: psycopg.Connection[tuple[object, ...]]) -> None:
    """Rows as a long time of updates leaves them, written without triggers; a version has ten chunks."""
    rng = np.random.default_rng(20)
    centers = rng.normal(size=(100, DIMENSIONS))
    with superuser.transaction():
        superuser.execute("SET LOCAL session_replication_role = replica")
        superuser.execute("SELECT register_model('test:crowd', %s)", [DIMENSIONS])
        superuser.execute(
            """
            CREATE TEMPORARY TABLE new ON COMMIT DROP AS
            SELECT 'owner ' || owner AS owner_id, row_number() OVER (ORDER BY owner, number) AS id, owner, number
            FROM generate_series(0, %s) AS owner,
                generate_series(1, CASE owner WHEN 0 THEN %s ELSE %s END / 10) AS number
            """,
            [OWNERS - 1, OF_LARGE, OF_SMALL],
        )
        superuser.execute(
            """
            INSERT INTO documents (id, owner_id, name, status, current_version_id) OVERRIDING SYSTEM VALUE
            SELECT id, owner_id, 'document ' || number, 'INDEXED', id * 100 + %s FROM new
            """,
            [STALE_PER_ACTIVE],
        )
        superuser.execute(
            """
            INSERT INTO document_versions (id, document_id, owner_id, version_no, status, storage_uri, model_id,
                indexed_at, chunk_count, embedding_count, active_embedding_count) OVERRIDING SYSTEM VALUE
            SELECT id * 100 + old, id, owner_id, old + 1, 'INDEXED', 'file:///', 1, now(), 10, 10,
                CASE old WHEN %(old)s THEN 10 ELSE 0 END
            FROM new, generate_series(0, %(old)s) AS old
            """,
            {"old": STALE_PER_ACTIVE},
        )
        superuser.execute(
            """
            INSERT INTO chunks (id, version_id, chunk_no, text, char_start, char_end, token_count, text_sha256)
                OVERRIDING SYSTEM VALUE
            SELECT version_id * 10 + chunk_no, version_id, chunk_no, 'passage', 0, 7, 1, repeat('0', 64)
            FROM (SELECT current_version_id FROM documents) AS d (version_id), generate_series(0, 9) AS chunk_no
            """
        )
        versions = superuser.execute("SELECT id, owner_id, active_embedding_count FROM document_versions").fetchall()
        with superuser.cursor().copy(
            "COPY embeddings (chunk_id, model_id, version_id, owner_id, status, embedding) FROM STDIN"
        ) as copy:
            for version_id, owner_id, active in versions:
                assert isinstance(version_id, int)
                vectors = centers[rng.integers(0, 100, 10)] + rng.normal(size=(10, DIMENSIONS)) * 0.5
                for number, vector in enumerate(vectors.round(4).tolist()):
                    status = "ACTIVE" if active else "STALE"
                    copy.write_row((version_id * 10 + number, 1, version_id, owner_id, status, str(vector)))
    superuser.execute("VACUUM ANALYZE")


@pytest.fixture
def in_crowd(crowd: Engines, monkeypatch: pytest.MonkeyPatch) -> Iterator[Connection]:
    monkeypatch.setattr(domain.search, "EXACT_UP_TO", 2000)
    with crowd.app.connect() as connection:
        yield connection


def near_passages(count: int) -> list[list[float]]:
    rng = np.random.default_rng(7)
    vectors: list[list[float]] = rng.normal(size=(count, DIMENSIONS)).tolist()
    return vectors


def exactly(connection: Connection, owner_id: str, query: list[float], limit: int) -> list[Passage]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(domain.search, "EXACT_UP_TO", 10**9)
        return search(connection, owner_id, {1: query}, limit)


def places(passages: Sequence[Passage]) -> set[tuple[int, int]]:
    return {(passage.document_id, passage.chunk_no) for passage in passages}


def test_through_the_index_at_least_95_of_100_of_the_ten_nearest_are_found(in_crowd: Connection) -> None:
    hits = 0
    for query in near_passages(50):
        exact = exactly(in_crowd, LARGE, query, 10)
        by_index = search(in_crowd, LARGE, {1: query}, 10)
        assert len(by_index) == 10
        assert [passage.score for passage in by_index] == sorted((p.score for p in by_index), reverse=True)
        hits += len(places(by_index) & places(exact))
    assert hits >= 0.95 * 500


def test_the_index_of_the_model_is_read_for_a_large_owner_and_the_owners_index_for_a_small_one(
    in_crowd: Connection,
) -> None:
    [query] = near_passages(1)
    plans = {}
    for owner_id in (LARGE, SMALL):
        with executed(in_crowd) as statements:
            search(in_crowd, owner_id, {1: query}, 10)
        plans[owner_id] = plan(in_crowd, statements[-1])
    assert "Index Scan using embeddings_of_model_1" in plans[LARGE]
    assert "embeddings_active_of_owner" in plans[SMALL]
    assert "embeddings_of_model_1" not in plans[SMALL]


def test_the_exact_search_of_a_large_owner_reads_no_approximate_index(in_crowd: Connection) -> None:
    [query] = near_passages(1)
    with executed(in_crowd) as statements:
        exactly(in_crowd, LARGE, query, 10)
    assert "embeddings_of_model_1" not in plan(in_crowd, statements[-1])


@pytest.mark.parametrize("owner_id", [LARGE, SMALL])
@pytest.mark.parametrize("limit", [1, 10, 200, 1000])
def test_among_200_owners_and_95_percent_stale_rows_a_search_finds_the_limit_or_all_there_is(
    in_crowd: Connection, owner_id: str, limit: int
) -> None:
    for query in near_passages(3):
        passages = search(in_crowd, owner_id, {1: query}, limit)
        assert len(places(passages)) == len(passages) == min(limit, OF_LARGE if owner_id == LARGE else OF_SMALL)
        assert {passage.version_no for passage in passages} == {STALE_PER_ACTIVE + 1}
        theirs = select(documents.c.id).where(documents.c.owner_id == owner_id)
        assert {passage.document_id for passage in passages} <= set(in_crowd.execute(theirs).scalars())


def test_what_the_index_does_not_give_the_exact_search_does(
    in_crowd: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    # An index scan that gives up at once, as it does where nearly all that is near belongs to others.
    monkeypatch.setitem(domain.search.INDEX_SCAN, "hnsw.iterative_scan", "off")
    monkeypatch.setitem(domain.search.INDEX_SCAN, "hnsw.ef_search", "1")
    monkeypatch.setattr(domain.search, "EXACT_UP_TO", 10)
    for query in near_passages(3):
        assert search(in_crowd, SMALL, {1: query}, 10) == exactly(in_crowd, SMALL, query, 10)
        assert len(search(in_crowd, SMALL, {1: query}, 1000)) == OF_SMALL
