"""Both servers of DIR together: started, migrated, described in DIR/env, stopped."""

from functools import cache, partial
from pathlib import Path
from typing import Self

from embedded.binaries import binaries_for, remove_unused_copies
from embedded.directory import locked, open_directory, write_env
from embedded.postgres import APPLICATION, OWNER, PostgresServer
from embedded.processes import Account
from embedded.usage import Usage
from embedded.valkey import ValkeyServer


class Servers:
    """PostgreSQL and Valkey of one directory. Made without starting anything; see ``start``."""

    def __init__(self, root: Path, account_name: str | None = None) -> None:
        """Look at what ``root``, a directory that ``open_directory`` gave, remembers.

        Args:
            account_name: the user to run the servers as when this program is root; default: as before, or
                ``nobody``. A plain user's servers run as himself.

        Raises:
            EmbeddedError: the directory or the account cannot be used.
        """
        self.root = root
        account = Account.for_servers(Usage(root).account_name(account_name))
        binaries = cache(partial(binaries_for, root, account))
        self.postgres = PostgresServer(root, account, binaries)
        self.valkey = ValkeyServer(root, account, binaries)

    @property
    def env(self) -> dict[str, str]:
        """What a program needs to use the servers, by the names that settings.py reads."""
        return {
            "DATABASE_URL": self.postgres.url(APPLICATION),
            "DATABASE_OWNER_URL": self.postgres.url(OWNER),
            "REDIS_URL": self.valkey.url,
            "STORAGE_URL": (self.root / "documents").as_uri(),
        }

    @property
    def running(self) -> bool:
        """Whether both run."""
        return self.postgres.running and self.valkey.running

    def start(self, postgres_port: int | None = None, valkey_port: int | None = None) -> bool:
        """Start what does not run, make what is missing, migrate, write DIR/env; False when both ran.

        The caller has locked DIR. On any failure, what this call started is stopped again.

        Raises:
            EmbeddedError: one line on what is wrong and what to do.
        """
        from embedded.migrate import migrate  # Alembic takes a second to import; stopping needs none of it

        if not (self.postgres.running or self.valkey.running):
            Usage(self.root).keep(False)  # whoever wanted them to stay up has lost them, in a reboot perhaps
        started = []
        try:
            for server, port in ((self.postgres, postgres_port), (self.valkey, valkey_port)):
                if server.start(port):
                    started.append(server)
            self.postgres.prepare()
            migrate(self.postgres.url(OWNER), APPLICATION)
            write_env(self.root, self.env)
        except BaseException:
            for server in started:
                server.stop()
            raise
        return bool(started)

    def stop(self) -> bool:
        """Stop both cleanly; False when none ran."""
        stopped = [self.valkey.stop(), self.postgres.stop()]
        Usage(self.root).keep(False)
        remove_unused_copies(self.root)
        return any(stopped)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def start(directory: Path, account_name: str | None = None) -> Servers:
    """Servers of ``directory``, up and migrated, until somebody stops them; a ``with`` does at its end."""
    root = open_directory(directory)
    with locked(root):
        servers = Servers(root, account_name)
        servers.start()
        Usage(root).keep(True)
    return servers
