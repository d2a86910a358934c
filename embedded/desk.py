"""What `make up` runs beside servers and worker, on loopback and until Ctrl-C: the HTTP API and Flower."""

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from embedded.directory import write_private

API_PORT = 8000
FLOWER_PORT = 5555
FLOWER_USER = "holdfast"
GRACE_SECONDS = 10.0
SECRETS = ("ADMIN_TOKEN", "JWT_SECRET")


def free_port(wished: int) -> int:
    """The wished port if nothing listens there, else any free one."""
    for port in (wished, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise OSError("no free port on 127.0.0.1")


def api_secrets(directory: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """The API's secrets: the caller's own, else those of DIR/api.env, made at the first start and kept."""
    path = directory / "api.env"
    kept = dict(line.split("=", 1) for line in path.read_text().splitlines()) if path.exists() else {}
    found = {name: environment.get(name) or kept.get(name) or secrets.token_hex(32) for name in SECRETS}
    if found != kept:
        write_private(path, "".join(f"{name}={value}\n" for name, value in found.items()))
    return found


def start(module: str, *arguments: str, env: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    """A program in a session of its own: Ctrl-C is for this one, which ends it."""
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.Popen(command, env=os.environ | env, start_new_session=True)  # noqa: S603 - its own programs


def main() -> int:
    """Start both, print the addresses, and wait; 1 when one of them ends by itself."""
    stopping: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda received, _: stopping.append(received))
    directory = Path(unquote(urlsplit(os.environ["STORAGE_URL"]).path)).parent
    api_port, flower_port, password = free_port(API_PORT), free_port(FLOWER_PORT), secrets.token_urlsafe(12)
    # Secrets go in the environment, where no other user reads them; a command line is public.
    flower_env = {
        "FLOWER_ADDRESS": "127.0.0.1",
        "FLOWER_PORT": str(flower_port),
        "FLOWER_BASIC_AUTH": f"{FLOWER_USER}:{password}",
    }
    api_arguments = ("api:app", "--host", "127.0.0.1", "--port", str(api_port), "--log-level", "warning")
    running = {
        "The API": start("uvicorn", *api_arguments, env=api_secrets(directory, os.environ)),
        "Flower": start("celery", "-A", "tasks", "flower", "--logging=warning", env=flower_env),
    }
    print(f"PostgreSQL, Valkey and a worker are up; their data and logs: {directory}")
    print(f"HTTP API:    http://127.0.0.1:{api_port}/docs")
    print(f"Flower:      http://127.0.0.1:{flower_port}   user {FLOWER_USER}, password {password}")
    print(f"To use them: set -a; . {directory / 'env'}; . {directory / 'api.env'}; set +a")
    print("             celery -A tasks documents add FOLDER --wait")
    print(
        f'             curl -H "Authorization: Bearer $(python -m api token ann)" http://127.0.0.1:{api_port}/documents'
    )
    print("Ctrl-C stops everything; the data stays.", flush=True)
    ended = None
    while not stopping and ended is None:
        time.sleep(0.2)
        ended = next((title for title, process in running.items() if process.poll() is not None), None)
    if ended is not None:
        print(f"{ended} ended with exit code {running[ended].returncode}.", file=sys.stderr)
    stop(*running.values())
    return 0 if ended is None else 1


def stop(*processes: "subprocess.Popen[bytes]") -> None:
    """End them all at once, those that take too long by force."""
    for process in processes:
        process.terminate()
    deadline = time.monotonic() + GRACE_SECONDS
    for process in processes:
        try:
            process.wait(max(0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


if __name__ == "__main__":
    sys.exit(main())
