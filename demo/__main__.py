"""Start a provider, the servers and a worker around the tour; leave nothing behind."""

import os
import secrets
import sys
import tempfile
import time
from pathlib import Path

from demo.provider import Provider
from embedded.errors import EmbeddedError
from embedded.run import run


def main() -> int:
    """Give the tour; 0 when everything happened as it says."""
    started = time.monotonic()
    print("Starting PostgreSQL, Valkey, an embedding provider and a Celery worker …", flush=True)
    provider = Provider(outages=1)
    provider.start()
    os.environ.update(
        EMBEDDING_PROVIDER="openai",
        EMBEDDING_MODEL="use-multilingual",
        EMBEDDING_DIMENSIONS=str(provider.embedder.dimensions),
        EMBEDDING_BASE_URL=provider.base_url,
        EMBEDDING_API_KEY=secrets.token_urlsafe(16),
    )
    try:
        with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as folder:
            code = run(Path(folder), [sys.executable, "-m", "demo.tour"])
    except EmbeddedError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 2
    finally:
        provider.stop()
    if code == 0:
        print(f"Everything is stopped and removed again, after {time.monotonic() - started:.0f} s.")
    return code


if __name__ == "__main__":
    sys.exit(main())
