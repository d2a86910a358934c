"""The command: ``python -m embedded up|down|status --dir DIR`` and ``run --dir DIR -- COMMAND``.

Exit codes: 0 done; 1 `status` of servers that do not all run; 2 it could not be done, and one line says why.
`run` has the exit code of its command.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from embedded.directory import find_directory, locked, open_directory
from embedded.errors import EmbeddedError, explain_os_error
from embedded.run import end_orphans, run
from embedded.servers import Servers
from embedded.signals import Signals
from embedded.usage import DEFAULT_ACCOUNT, Usage


def main(arguments: Sequence[str]) -> int:
    """Do what the command line asks; the exit code."""
    own, command = split(arguments)
    asked = parser().parse_args(own)
    if asked.action == "run" and not command:
        parser().error("run needs a command: python -m embedded run --dir DIR -- COMMAND")
    try:
        match asked.action:
            case "up":
                return up(asked.dir, asked.user, asked.postgres_port, asked.valkey_port)
            case "down":
                return down(asked.dir)
            case "status":
                return status(asked.dir, as_json=asked.json)
            case _:
                return run(asked.dir, command, asked.user)
    except EmbeddedError as error:
        print(f"embedded: {error}", file=sys.stderr)
    except OSError as error:
        print(f"embedded: {explain_os_error(error, asked.dir)}", file=sys.stderr)
    return 2


def split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """What stands before and behind the first ``--``."""
    words = list(arguments)
    if "--" not in words:
        return words, []
    at = words.index("--")
    return words[:at], words[at + 1 :]


def parser() -> argparse.ArgumentParser:
    """The options of every action."""
    whole = argparse.ArgumentParser(prog="python -m embedded", description="PostgreSQL and Valkey from wheels.")
    actions = whole.add_subparsers(dest="action", required=True)
    helps = {
        "up": "start both servers, migrate, write DIR/env, and leave them running",
        "down": "stop both servers",
        "status": "say what runs",
        "run": "run a command with both servers and a worker up: run --dir DIR -- COMMAND",
    }
    for name, says in helps.items():
        action = actions.add_parser(name, help=says, description=says)
        action.add_argument("--dir", type=Path, required=True, metavar="DIR", help="where everything is kept")
        if name in ("up", "run"):
            action.add_argument("--user", help=f"as root only: whom the servers run as (default: {DEFAULT_ACCOUNT})")
    actions.choices["up"].add_argument("--postgres-port", type=port, metavar="PORT", help="default: any free one")
    actions.choices["up"].add_argument("--valkey-port", type=port, metavar="PORT", help="default: any free one")
    actions.choices["status"].add_argument("--json", action="store_true", help="for programs")
    return whole


def port(text: str) -> int:
    """A port number."""
    number = int(text)
    if not 1 <= number <= 65_535:
        raise ValueError(text)
    return number


def up(directory: Path, user: str | None, postgres_port: int | None, valkey_port: int | None) -> int:
    """Start the servers to stay; safe to repeat."""
    with Signals() as signals:
        root = open_directory(directory)
        with locked(root):
            servers = Servers(root, user)
            end_orphans(root)
            started = servers.start(postgres_port, valkey_port)
            if signals.received and started:
                servers.stop()
                return signals.exit_code
            Usage(root).keep(True)
    print("PostgreSQL and Valkey are up." if started else "PostgreSQL and Valkey were already running.")
    print(f"Their addresses: {root / 'env'}")
    print(f"To use them:     set -a; . {root / 'env'}; set +a")
    return 0


def down(directory: Path) -> int:
    """Stop the servers, and workers that a killed `run` left; safe to repeat."""
    root = find_directory(directory)
    if root is None:
        print(f"Nothing runs in {directory}.")
        return 0
    with Signals(), locked(root):
        end_orphans(root)
        for other in Usage(root).runs:
            print(f"embedded: process {other.pid} (run) was still using the servers", file=sys.stderr)
        stopped = Servers(root).stop()
    print("PostgreSQL and Valkey are stopped." if stopped else f"Nothing runs in {root}.")
    return 0


def status(directory: Path, *, as_json: bool) -> int:
    """Print what runs, where."""
    root = find_directory(directory)
    servers = None if root is None else Servers(root)
    found = [] if servers is None else [servers.postgres, servers.valkey]
    rows = [
        {
            "server": server.title,
            "running": server.running,
            "port": server.port,
            "pid": process.pid if process else None,
        }
        for server in found
        for process in [server.process]
    ]
    if as_json:
        print(json.dumps({"dir": str(directory), "env": str(root / "env") if root else None, "servers": rows}))
    elif not rows:
        print(f"Nothing runs in {directory}.")
    for row in [] if as_json else rows:
        state = f"running on 127.0.0.1:{row['port']}, pid {row['pid']}" if row["running"] else "stopped"
        print(f"{row['server']:<11} {state}")
    return 0 if rows and all(row["running"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
