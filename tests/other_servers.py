"""Other servers than the embedded one, for the same tests: a PostgreSQL elsewhere, a pooler in between.

pytest tests/domain --postgres-at postgresql://postgres:password@127.0.0.1:5432/postgres
pytest tests/domain --postgres-setting timezone=Asia/Seoul
pytest tests/domain --pooler
"""

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg
import pytest
from psycopg import sql

from embedded.migrate import migrate
from embedded.postgres import APPLICATION, OWNER, SUPERUSER, PostgresServer
from embedded.processes import dropped_to
from embedded.servers import Servers

PGBOUNCER = shutil.which("pgbouncer", path="/usr/sbin:/usr/bin:/usr/local/bin:/usr/local/sbin")
NO_PGBOUNCER = "PgBouncer is not installed (Debian: apt install pgbouncer)"
LOOPBACK = "127.0.0.1"
# A pooler knows no session: what the tests set for theirs, it sets for the roles.
SETTINGS_OF_SESSIONS = ("statement_timeout=30s", "lock_timeout=20s")


def add_options(parser: pytest.Parser) -> None:
    group = parser.getgroup("servers", "which PostgreSQL the tests run on, and how they reach it")
    group.addoption("--postgres-at", metavar="URL", help="of the superuser of another server, with pgvector")
    group.addoption(
        "--postgres-setting", metavar="NAME=VALUE", action="append", default=[], help="a default of both roles"
    )
    group.addoption("--pooler", action="store_true", help="the application role goes through PgBouncer")


class PostgresElsewhere(PostgresServer):
    """A running server that others started; both roles and the migrated database are made in it."""

    def __init__(self, embedded: PostgresServer, url: str) -> None:
        super().__init__(embedded.root, embedded.account, embedded.binaries)
        self._info = psycopg.conninfo.conninfo_to_dict(url)

    @property
    def port(self) -> int:
        return int(self._info.get("port") or 5432)

    def password(self, of: str) -> str:
        return str(self._info.get("password", "")) if of == SUPERUSER else "password-of-tests"


def use_elsewhere(servers: Servers, url: str) -> None:
    servers.postgres = PostgresElsewhere(servers.postgres, url)
    servers.postgres.prepare()
    migrate(servers.postgres.url(OWNER), APPLICATION)


def set_for_roles(postgres: PostgresServer, settings: Sequence[str]) -> None:
    """Make these the defaults of both roles, in every database."""
    with postgres.connect("postgres") as connection:
        for role in (OWNER, APPLICATION):
            for name, value in (setting.split("=", 1) for setting in settings):
                statement = sql.SQL("ALTER ROLE {} SET {} = {}")
                connection.execute(statement.format(sql.Identifier(role), sql.Identifier(name), sql.Literal(value)))


@contextmanager
def pooler(postgres: PostgresServer) -> Iterator[int]:
    """PgBouncer in transaction mode before every database of the server; yields its port."""
    assert PGBOUNCER is not None, NO_PGBOUNCER
    with socket.create_server((LOOPBACK, 0)) as free:
        port: int = free.getsockname()[1]
    with TemporaryDirectory(prefix="holdfast-pgbouncer-") as folder:
        Path(folder).chmod(0o755)
        users = Path(folder, "users.txt")
        users.write_text(f'"{APPLICATION}" "{postgres.password(APPLICATION)}"\n')
        configuration = Path(folder, "pgbouncer.ini")
        configuration.write_text(
            f"""
            [databases]
            * = host={LOOPBACK} port={postgres.port}
            [pgbouncer]
            listen_addr = {LOOPBACK}
            listen_port = {port}
            unix_socket_dir =
            auth_type = scram-sha-256
            auth_file = {users}
            pool_mode = transaction
            default_pool_size = 60
            max_client_conn = 500
            ignore_startup_parameters = extra_float_digits, options
            """.replace("            ", "")
        )
        for file in (users, configuration):
            file.chmod(0o644)  # it does not run as root
        with Path(folder, "log").open("wb") as log:
            process = subprocess.Popen(
                [PGBOUNCER, configuration], stdout=log, stderr=log, cwd="/", **dropped_to(postgres.account)
            )
        try:
            _wait_for(process, port, Path(folder, "log"))
            yield port
        finally:
            process.terminate()
            process.wait(10)


def _wait_for(process: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            with socket.create_connection((LOOPBACK, port), timeout=1):
                return
        except OSError:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
