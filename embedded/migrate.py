"""Bringing the database to the newest revision, from wherever this program was started or installed."""

import importlib.util
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy.exc import SQLAlchemyError

from embedded.errors import EmbeddedError


def migrate(owner_url: str, application_role: str) -> None:
    """Run every revision that is missing, as the owner.

    Args:
        owner_url: ``postgresql://`` of the owning role.
        application_role: the role that the revisions grant rights to.

    Raises:
        EmbeddedError: a revision failed, or the database is newer than this program.
    """
    spec = importlib.util.find_spec("migrations.env")
    if spec is None or spec.origin is None:
        raise EmbeddedError("the package `migrations` is not installed; install Holdfast again.")
    config = Config()
    # In Alembic's configuration a percent sign starts an interpolation.
    config.set_main_option("script_location", str(Path(spec.origin).parent).replace("%", "%%"))
    config.attributes["owner_url"] = owner_url
    config.attributes["application_role"] = application_role
    try:
        command.upgrade(config, "head")
    except CommandError as error:
        raise EmbeddedError(f"the database cannot be migrated: {error}; is this an older Holdfast?") from error
    except SQLAlchemyError as error:
        raise EmbeddedError(f"the database cannot be migrated: {str(error).splitlines()[0]}") from error
