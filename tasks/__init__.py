"""What Celery runs: ``celery -A tasks worker``, and the tasks, the supervisor thread and the commands.

Importing this package reads no setting, starts no thread and opens no connection: every ``celery`` command of
this environment imports it, also those of other projects.
"""

import sys
from importlib.util import find_spec
from pathlib import Path


def refuse_foreign_modules(root: Path) -> None:
    """Fail with a clear message when another project's ``settings.py`` or ``domain`` stands before ours.

    These names are common, and Python takes whichever folder comes first. A worker that runs half of one
    project and half of another is worse than one that does not start.

    Raises:
        ImportError: a module this package needs would come from outside ``root``.
    """
    for name in ("celeryconfig", "domain", "settings", "stages"):
        loaded = sys.modules.get(name)
        spec = loaded.__spec__ if loaded is not None else find_spec(name)
        origin = spec.origin if spec is not None else None
        if origin is None or root not in Path(origin).resolve().parents:
            raise ImportError(
                f"Holdfast runs from {root}, but the module {name!r} it needs is "
                f"{'missing' if origin is None else 'another one: ' + origin}. "
                "Start it from a folder without a module of that name, or in an environment of its own."
            )


refuse_foreign_modules(Path(__file__).resolve().parent.parent)

from tasks.app import app  # noqa: E402 - the check comes first: this import needs the modules it names

__all__ = ["app"]
