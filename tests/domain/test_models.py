"""Registering an embedding model: once, with its index, whoever comes first."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from domain.enqueue import register_model
from tests.conftest import Connect, WaitUntilBlocked
from tests.domain.rows import column, count


def indexes(connection: Connection, model_id: int) -> list[str]:
    return column(
        connection, "SELECT indexdef FROM pg_indexes WHERE indexname = :name", name=f"embeddings_of_model_{model_id}"
    )


def test_a_model_has_one_id_for_each_of_its_dimensions(connection: Connection) -> None:
    first = register_model(connection, "openai:text-embedding-3-small", 512)
    assert register_model(connection, "openai:text-embedding-3-small", 512) == first
    assert register_model(connection, "openai:text-embedding-3-small", 1536) != first
    assert count(connection, "embedding_models") == 2


@pytest.mark.parametrize(("dimensions", "kind"), [(3, "vector(3)"), (2000, "vector(2000)"), (2001, "halfvec(2001)")])
def test_a_model_has_an_index_of_its_own_over_what_is_active(
    connection: Connection, dimensions: int, kind: str
) -> None:
    model_id = register_model(connection, "test:model", dimensions)
    [definition] = indexes(connection, model_id)
    assert kind in definition
    assert f"model_id = {model_id}" in definition
    assert "'ACTIVE'" in definition


def test_a_model_that_no_index_can_hold_is_registered_without_one(connection: Connection) -> None:
    assert indexes(connection, register_model(connection, "test:model", 4001)) == []


@pytest.mark.parametrize("name", ["", "model", ":model", "provider:", "a:" + "b" * 254])
def test_a_name_that_is_not_provider_and_model_is_refused(connection: Connection, name: str) -> None:
    with pytest.raises(IntegrityError, match="models_name_is_provider_and_model"):
        register_model(connection, name, 3)


@pytest.mark.parametrize("dimensions", [0, -1, 16_001])
def test_dimensions_that_no_vector_has_are_refused(connection: Connection, dimensions: int) -> None:
    with pytest.raises(IntegrityError, match="models_dimensions_fit_a_vector"):
        register_model(connection, "test:model", dimensions)


@pytest.mark.race
def test_of_two_who_register_a_model_at_once_both_get_its_id(
    connect: Connect, background: ThreadPoolExecutor, wait_until_blocked: WaitUntilBlocked
) -> None:
    first, second = connect(), connect()
    model_id = register_model(first, "test:model", 3)
    other = background.submit(register_model, second, "test:model", 3)
    wait_until_blocked(second)
    first.commit()
    assert other.result(timeout=60) == model_id
    second.commit()
    assert len(indexes(second, model_id)) == 1
