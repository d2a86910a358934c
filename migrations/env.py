"""How Alembic reaches the database: as the owner, one migration at a time, each in its own transaction.

The revisions grant rights to the application role and read its name from the setting ``holdfast.app_role``.
"""

import sys
from typing import Any, NamedTuple

from alembic import context
from sqlalchemy import create_engine, make_url, text
from sqlalchemy.pool import NullPool

from settings import SettingsInvalid, settings

# A migration that cannot get its lock must give up: whoever comes after it waits in the queue behind it.
LOCK_TIMEOUT = "5s"

# Other migrations may run for long, and are waited for. Any number will do, as long as all agree on it.
MIGRATION_LOCK = 4_865_921_310_774_013_501
MIGRATION_LOCK_TIMEOUT = "10min"

OPTIONS: dict[str, Any] = {
    "target_metadata": None,  # revisions are written by hand: history must not change when today's tables do
    "transaction_per_migration": True,
    "compare_type": True,
}


class Target(NamedTuple):
    """The database to migrate."""

    owner_url: str
    application_role: str


def target() -> Target:
    """What the caller gave in ``config.attributes``; else, for the ``alembic`` command, the environment's."""
    given = context.config.attributes
    if "owner_url" in given:
        return Target(given["owner_url"], given["application_role"])
    try:
        environment = settings()
    except SettingsInvalid as error:
        print(error, file=sys.stderr)  # it exits with 2, and by itself without a word
        raise
    return Target(environment.sqlalchemy_owner_url, make_url(environment.sqlalchemy_url).username or "")


def migrate() -> None:
    """Run the revisions on the database."""
    url = make_url(target().owner_url).set(drivername="postgresql+psycopg")
    engine = create_engine(url, poolclass=NullPool)
    with engine.connect() as connection:
        connection.execute(text(f"SET lock_timeout = '{MIGRATION_LOCK_TIMEOUT}'"))
        connection.execute(text("SELECT pg_advisory_lock(:lock)"), {"lock": MIGRATION_LOCK})
        connection.execute(text(f"SET lock_timeout = '{LOCK_TIMEOUT}'"))
        role = {"role": target().application_role}
        connection.execute(text("SELECT set_config('holdfast.app_role', :role, false)"), role)
        connection.commit()  # settings and lock are the session's; each revision begins its own transaction
        context.configure(connection=connection, **OPTIONS)
        with context.begin_transaction():
            context.run_migrations()


def print_sql() -> None:
    """Print the revisions as one script (``alembic upgrade head --sql``)."""
    context.configure(dialect_name="postgresql", **OPTIONS)
    with context.begin_transaction():
        role = target().application_role.replace("'", "''")
        context.get_context().impl.static_output(f"SELECT set_config('holdfast.app_role', '{role}', false);")
        context.run_migrations()


if context.is_offline_mode():
    print_sql()
else:
    migrate()
