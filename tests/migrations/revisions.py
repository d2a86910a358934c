"""Running revisions as ``alembic`` does, on a database of the test's own."""

from alembic.config import Config
from sqlalchemy import URL

from migrations.sql import VERSIONS


def alembic_config(owner_url: URL, application_role: str) -> Config:
    config = Config()
    config.set_main_option("script_location", str(VERSIONS.parent).replace("%", "%%"))
    config.attributes["owner_url"] = owner_url.render_as_string(hide_password=False)
    config.attributes["application_role"] = application_role
    return config
