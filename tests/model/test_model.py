"""The domain on real PostgreSQL does what the model says, whatever is asked of it and in whatever order."""

import os
from functools import partial
from typing import Any

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.conftest import Database, Engines
from tests.model.machine import DocumentsAndWorkers

EXAMPLES = int(os.environ.get("MODEL_EXAMPLES", "6"))
SEED = int(os.environ.get("MODEL_SEED", "1"))


def test_the_database_is_what_the_model_says_after_every_step(database: Database, engines: Engines) -> None:
    walk = settings(
        max_examples=EXAMPLES,
        stateful_step_count=50,
        deadline=None,
        database=None,
        print_blob=False,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    machine: Any = seed(SEED)(partial(DocumentsAndWorkers, engines))
    run_state_machine_as_test(machine, settings=walk)
