"""One database for all pairs: its rows are put back before every order."""

from collections.abc import Iterator

import pytest

from embedded.servers import Servers
from tests.conftest import TEMPLATE, Database, Engines
from tests.interleavings.scenes import Stage
from tests.interleavings.schedule import Director

NAME = "holdfast_interleavings"


@pytest.fixture(scope="package")
def stage_engines(servers: Servers) -> Engines:
    with servers.postgres.connect("postgres") as connection:
        servers.postgres.create_database(connection, NAME, template=TEMPLATE)
    return Engines.of(Database.of(servers, NAME))


@pytest.fixture(scope="package")
def stage(stage_engines: Engines) -> Iterator[Stage]:
    made = Stage(stage_engines)
    yield made
    made.close()


@pytest.fixture(scope="package")
def director(stage_engines: Engines) -> Iterator[Director]:
    made = Director(stage_engines.app)
    yield made
    made.close()
