"""The Celery app."""

from importlib import import_module
from typing import Any

from celery import Celery


def configuration() -> dict[str, Any]:
    """Every setting of ``celeryconfig.py``. Called when Celery first needs one, so that an import reads none.

    The module is imported by us and not named to Celery, which would look in the current folder first and
    find whatever ``celeryconfig.py`` lies there.
    """
    plain = (str, int, float, list, tuple, dict, type(None))
    names = vars(import_module("celeryconfig")).items()
    return {name: value for name, value in names if isinstance(value, plain) and not name.startswith("_")}


# By name, as it is imported later. Celery's own tasks get it too: their messages are no better than others.
app = Celery("holdfast", task_cls="tasks.requests:StageTask")
app.add_defaults(configuration)
# By name: they are imported by a worker only, not by every command that touches the app.
app.steps["worker"].add("tasks.supervisor:Supervisor")
