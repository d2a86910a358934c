"""What the servers are like once they run: closed to others, right for Korean, described in DIR/env."""

import os
import stat
import subprocess
from pathlib import Path

import psycopg
import pytest
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError
from redis.retry import Retry
from sqlalchemy import Connection, text

from embedded.postgres import APPLICATION, OWNER, SUPERUSER
from embedded.servers import Servers, start
from settings import Settings


@pytest.mark.parametrize("role", [SUPERUSER, OWNER, APPLICATION])
@pytest.mark.parametrize("password", ["", "wrong"])
def test_postgresql_lets_nobody_in_without_the_password(servers: Servers, role: str, password: str) -> None:
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(host="127.0.0.1", port=servers.postgres.port, user=role, password=password, dbname="postgres")


def test_valkey_lets_nobody_in_without_the_password(servers: Servers) -> None:
    with Redis(port=servers.valkey.port, retry=Retry(NoBackoff(), 0)) as stranger, pytest.raises(AuthenticationError):
        stranger.ping()


def test_no_file_of_the_directory_is_open_to_others(servers: Servers) -> None:
    seen = 0
    for folder, _, files in os.walk(servers.root):
        for path in (Path(folder), *(Path(folder) / name for name in files)):
            seen += 1
            assert not stat.S_IMODE(path.lstat().st_mode) & 0o077, path
    assert seen > 100


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="command lines are read from /proc")
def test_no_password_stands_on_a_command_line(servers: Servers) -> None:
    secrets = [part.split(":")[2].split("@")[0] for part in servers.env.values() if "@" in part]
    assert len(secrets) == 3
    for server in (servers.postgres, servers.valkey):
        assert server.process is not None
        shown = Path(f"/proc/{server.process.pid}/cmdline").read_text()
        assert not [secret for secret in secrets if secret in shown]


def test_the_env_file_is_all_that_the_settings_need(servers: Servers) -> None:
    shell = f"set -a; . {servers.root}/env; exec env"
    shown = subprocess.run(["sh", "-c", shell], env={}, capture_output=True, text=True, check=True).stdout
    values = dict(line.split("=", 1) for line in shown.splitlines())
    settings = Settings(**{name.lower(): values[name] for name in servers.env})  # type: ignore[arg-type]
    assert settings.storage_url == servers.env["STORAGE_URL"]
    assert settings.sqlalchemy_url.startswith(f"postgresql+psycopg://{APPLICATION}:")
    assert settings.sqlalchemy_owner_url.startswith(f"postgresql+psycopg://{OWNER}:")


def test_the_application_owns_nothing_and_creates_nothing(connection: Connection) -> None:
    owned = "SELECT count(*) FROM pg_class WHERE relowner = current_user::regrole"
    assert connection.execute(text(owned)).scalar_one() == 0
    for right in ("has_schema_privilege('public', 'CREATE')", "has_database_privilege(current_database(), 'TEMP')"):
        assert connection.execute(text(f"SELECT {right}")).scalar_one() is False


def test_korean_words_have_trigrams(superuser: Connection) -> None:
    superuser.execute(text("CREATE EXTENSION pg_trgm"))
    assert superuser.execute(text("SELECT cardinality(show_trgm('한국어 문서'))")).scalar_one() == 7


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ("fsync", "on"),
        ("TimeZone", "UTC"),
        ("default_transaction_isolation", "read committed"),
        ("listen_addresses", "127.0.0.1"),
        ("server_encoding", "UTF8"),
    ],
)
def test_postgresql_runs_with(connection: Connection, parameter: str, value: str) -> None:
    assert connection.execute(text(f"SHOW {parameter}")).scalar_one() == value


@pytest.mark.parametrize(
    ("parameter", "value"),
    [("appendonly", "yes"), ("appendfsync", "everysec"), ("maxmemory-policy", "noeviction"), ("bind", "127.0.0.1")],
)
def test_valkey_runs_with(servers: Servers, parameter: str, value: str) -> None:
    with Redis.from_url(servers.valkey.url, decode_responses=True) as client:
        assert client.config_get(parameter) == {parameter: value}


def test_starting_what_runs_changes_nothing(servers: Servers) -> None:
    before = (servers.postgres.process, servers.valkey.process, servers.env)
    again = start(servers.root)
    assert (again.postgres.process, again.valkey.process, again.env) == before
