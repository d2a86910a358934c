"""What `make up` runs beside servers and worker: Flower on loopback, until Ctrl-C, and the addresses on the screen."""

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import unquote, urlsplit

FLOWER_PORT = 5555
FLOWER_USER = "holdfast"
GRACE_SECONDS = 10.0


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


def main() -> int:
    """Start Flower with a password of its own, print the addresses, and wait."""
    port, password = free_port(FLOWER_PORT), secrets.token_urlsafe(12)
    # In the environment, where no other user reads it; the command line is public.
    flower_env = {
        "FLOWER_ADDRESS": "127.0.0.1",
        "FLOWER_PORT": str(port),
        "FLOWER_BASIC_AUTH": f"{FLOWER_USER}:{password}",
    }
    stopping: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda received, _: stopping.append(received))
    flower = subprocess.Popen(
        [sys.executable, "-m", "celery", "-A", "tasks", "flower", "--logging=warning"],
        env=os.environ | flower_env,
        start_new_session=True,  # Ctrl-C is for this program, which ends it
    )
    directory = Path(unquote(urlsplit(os.environ["STORAGE_URL"]).path)).parent
    print(f"PostgreSQL, Valkey and a worker are up; their data and logs: {directory}")
    print(f"Flower:      http://127.0.0.1:{port}   user {FLOWER_USER}, password {password}")
    print(f"To use them: set -a; . {directory / 'env'}; set +a")
    print("             celery -A tasks documents add FOLDER --wait")
    print("Ctrl-C stops everything; the data stays.", flush=True)
    while not stopping and flower.poll() is None:
        time.sleep(0.2)
    if flower.poll() is not None:
        print(f"Flower ended with exit code {flower.returncode}.", file=sys.stderr)
        return 1
    flower.terminate()
    try:
        flower.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        flower.kill()
        flower.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
