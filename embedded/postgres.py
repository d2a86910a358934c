"""PostgreSQL with pgvector: the cluster, its two roles and its one database."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import psycopg
from psycopg import sql
from psycopg.rows import TupleRow

from embedded.errors import EmbeddedError, explain_output
from embedded.processes import Process, dropped_to, server_environment, spawn
from embedded.server import LOOPBACK, Server

SUPERUSER = "postgres"
OWNER = "holdfast_owner"
APPLICATION = "holdfast_app"
DATABASE = "holdfast"

# With LC_CTYPE=C, the default of many images, pg_trgm finds no trigram in Korean and says nothing.
CHARACTER_TYPE = "C.UTF-8"

PARAMETERS = {
    "listen_addresses": LOOPBACK,
    "unix_socket_directories": "",  # its path would be too long in a deep DIR; loopback and passwords serve
    "max_connections": "100",
    "shared_buffers": "64MB",
    "max_wal_size": "256MB",
    "default_transaction_isolation": "read committed",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",
    "fsync": "on",
}


class PostgresServer(Server):
    """The database server of DIR."""

    name = "postgres"
    title = "PostgreSQL"
    # fast (roll back, disconnect, checkpoint), immediate (crash without loss), and what cannot be refused
    stop_signals = ((signal.SIGINT, 60.0), (signal.SIGQUIT, 15.0), (signal.SIGKILL, 15.0))

    def url(self, role: str, database: str = DATABASE) -> str:
        """``postgresql://`` of a role, password included."""
        return f"postgresql://{role}:{self.password(role)}@{LOOPBACK}:{self.port}/{database}"

    def stop(self, mode: Literal["fast", "immediate"] = "fast") -> bool:
        """Stop it; ``immediate`` writes no checkpoint, so the next start recovers from the log."""
        if mode == "immediate" and (process := self.process) is not None:
            process.send(signal.SIGQUIT)
            process.wait(15)
            return True
        return super().stop()

    def connect(self, database: str = DATABASE) -> psycopg.Connection[TupleRow]:
        """A connection of the superuser, in autocommit."""
        # sslmode and options by name, or the environment of the caller (PGSSLMODE, PGOPTIONS) would speak.
        return psycopg.connect(
            host=LOOPBACK,
            port=self.port,
            user=SUPERUSER,
            password=self.password(SUPERUSER),
            dbname=database,
            sslmode="disable",
            options="",
            connect_timeout=30,
            autocommit=True,
        )

    def prepare(self) -> None:
        """Make the roles, the database and the extension that are missing; safe to repeat.

        Raises:
            EmbeddedError: the cluster was made with settings that Holdfast cannot work with.
        """
        with self.connect("postgres") as connection:
            for role in (OWNER, APPLICATION):
                if connection.execute("SELECT FROM pg_roles WHERE rolname = %s", [role]).fetchone() is None:
                    statement = sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}")
                    connection.execute(statement.format(sql.Identifier(role), sql.Literal(self.password(role))))
            self.create_database(connection, DATABASE)
            found = connection.execute("SELECT datctype FROM pg_database WHERE datname = %s", [DATABASE]).fetchone()
            if found is None or found[0] != CHARACTER_TYPE:
                raise EmbeddedError(
                    f"{self.data} has LC_CTYPE {found[0] if found else None}, not {CHARACTER_TYPE}: trigram "
                    "search would lose Korean words; dump it (pg_dump) and load it in another --dir."
                )
        with self.connect() as connection:
            # Only a superuser can: pgvector is not a trusted extension.
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector")

    @staticmethod
    def create_database(connection: psycopg.Connection[TupleRow], name: str, template: str = "template1") -> None:
        """Make a database of the owner that the application may connect to, unless it is there."""
        names = {
            "database": sql.Identifier(name),
            "owner": sql.Identifier(OWNER),
            "application": sql.Identifier(APPLICATION),
            "template": sql.Identifier(template),
        }
        if connection.execute("SELECT FROM pg_database WHERE datname = %s", [name]).fetchone() is None:
            statement = sql.SQL("CREATE DATABASE {database} OWNER {owner} TEMPLATE {template}")
            connection.execute(statement.format(**names))
        # The rights of a database are not copied from its template.
        for right in (
            sql.SQL("REVOKE ALL ON DATABASE {database} FROM PUBLIC"),
            sql.SQL("GRANT CONNECT ON DATABASE {database} TO {application}"),
        ):
            connection.execute(right.format(**names))

    def _initialise(self) -> None:
        if self.data.exists():
            self._check_version()
            return
        # Made beside its place, renamed when complete: an interrupted initdb leaves nothing that looks made.
        new = self.data.with_name("postgres.new")
        if new.exists():
            shutil.rmtree(new)
        self._make_data_folder(new)
        with _opened(new) as folder, tempfile.TemporaryFile() as password_file:
            password_file.write(self.password(SUPERUSER).encode() + b"\n")
            password_file.flush()
            password_file.seek(0)
            if self.account is not None:
                os.fchown(password_file.fileno(), self.account.uid, self.account.gid)
            made = subprocess.run(  # noqa: S603
                [
                    self.binaries().postgres_bin / "initdb",
                    f"--pgdata={self._path(new, folder)}",
                    f"--username={SUPERUSER}",
                    f"--pwfile=/dev/fd/{password_file.fileno()}",
                    "--auth=scram-sha-256",
                    "--encoding=UTF8",
                    "--locale=C",
                    f"--lc-ctype={CHARACTER_TYPE}",
                    "--locale-provider=builtin",
                    "--builtin-locale=C.UTF-8",
                ],
                capture_output=True,
                text=True,
                check=False,
                cwd="/",
                env=server_environment(),
                pass_fds=[folder, password_file.fileno()],
                start_new_session=True,  # Ctrl-C of the terminal is for this program, which tidies up
                **dropped_to(self.account),
            )
        if made.returncode != 0:
            with open(self.log, "a", encoding="utf-8", opener=_private) as log:
                log.write(made.stdout + made.stderr)
            shutil.rmtree(new)
            raise explain_output("the database could not be made", made.stderr, self.root, self.log)
        new.rename(self.data)

    def _check_version(self) -> None:
        program = subprocess.run(  # noqa: S603
            [self.binaries().postgres_bin / "postgres", "--version"], capture_output=True, text=True, check=True
        ).stdout.split()[-1]
        try:
            made_by = (self.data / "PG_VERSION").read_text().strip()
        except FileNotFoundError:
            raise EmbeddedError(
                f"{self.data} holds no database of PostgreSQL; move it away, or choose another --dir."
            ) from None
        if made_by != program.split(".")[0]:
            raise EmbeddedError(
                f"{self.data} was made by PostgreSQL {made_by}, and this is {program}: start in another "
                f"--dir, and bring the data over with pg_dump of PostgreSQL {made_by}."
            )
        if SUPERUSER not in self.record.get("passwords", {}):
            raise EmbeddedError(
                f"the passwords of {self.data} are gone ({self._record_file}); restore that file, "
                "or choose another --dir."
            )

    def _spawn(self, port: int, folder: int) -> Process:
        command = [
            str(self.binaries().postgres_bin / "postgres"),
            "-D",
            self._path(self.data, folder),
            "-c",
            f"port={port}",
        ]
        for name, value in PARAMETERS.items():
            command += ["-c", f"{name}={value}"]
        return spawn(
            command,
            log=self.log,
            # The pid of before a crash may be another program's of the same user now; PostgreSQL would take
            # that for a running server. The lock on the folder says there is none; this names whom to ignore.
            env=server_environment() | {"PG_GRANDPARENT_PID": self._stale_pid()},
            cwd="/",
            account=self.account,
            pass_fds=[folder],
        )

    def _stale_pid(self) -> str:
        try:
            return (self.data / "postmaster.pid").read_text().split("\n", 1)[0]
        except FileNotFoundError:
            return ""

    def _path(self, path: Path, folder: int) -> str:
        """How the server names a folder that is open as ``folder``.

        By its descriptor when it runs as another user than we: the folder may lie below directories that are
        closed to that user, such as root's home, and nobody's permissions are changed for it.
        """
        return f"/proc/self/fd/{folder}" if self.account is not None and sys.platform == "linux" else str(path)

    def _ready(self, process: Process, port: int) -> bool:
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        if len(lines) < 8 or lines[0] != str(process.pid) or lines[7].strip() != "ready":
            return False
        with contextlib.suppress(OSError), socket.create_connection((LOOPBACK, port), timeout=10):
            return True
        return False


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
