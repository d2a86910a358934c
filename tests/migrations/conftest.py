"""Databases that no revision has touched yet."""

from collections.abc import Iterator
from itertools import count

import pytest
from psycopg import sql

from embedded.servers import Servers
from tests.conftest import Database

_numbers = count(1)


@pytest.fixture
def empty(servers: Servers) -> Iterator[Database]:
    """A database with pgvector and nothing else."""
    name = f"holdfast_empty_{next(_numbers)}"
    with servers.postgres.connect("postgres") as connection:
        servers.postgres.create_database(connection, name)
    with servers.postgres.connect(name) as connection:
        connection.execute("CREATE EXTENSION vector")
    yield Database.of(servers, name)
    with servers.postgres.connect("postgres") as connection:
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))
