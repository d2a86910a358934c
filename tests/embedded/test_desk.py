"""`make up`: the API and Flower beside the servers, and the addresses on the screen."""

import os
import re
import signal
import stat
import subprocess
import sys
from pathlib import Path

import httpx
import jwt
import pytest

from embedded.desk import api_secrets
from tests.conftest import WaitUntil


def test_the_apis_secrets_are_made_once_kept_private_and_given_way_to_the_callers(tmp_path: Path) -> None:
    made = api_secrets(tmp_path, {})
    assert {len(value) for value in made.values()} == {64}
    assert stat.S_IMODE((tmp_path / "api.env").stat().st_mode) == 0o600
    assert api_secrets(tmp_path, {}) == made
    own = api_secrets(tmp_path, {"ADMIN_TOKEN": "x" * 32})
    assert own == made | {"ADMIN_TOKEN": "x" * 32}


@pytest.mark.end_to_end
def test_make_up_starts_the_api_and_says_where_and_ends_it(
    environment: dict[str, str], tmp_path: Path, wait_until: WaitUntil
) -> None:
    screen = tmp_path / "screen"
    with screen.open("wb") as output:
        desk = subprocess.Popen(
            [sys.executable, "-m", "embedded.desk"], env=os.environ | environment, stdout=output, stderr=output
        )
    try:
        wait_until(lambda: "/docs" in screen.read_text(), 30)
        [url] = re.findall(r"HTTP API: +(http://127\.0\.0\.1:\d+)/docs", screen.read_text())
        secrets = dict(line.split("=", 1) for line in (tmp_path / "api.env").read_text().splitlines())
        token = jwt.encode({"sub": "ann"}, secrets["JWT_SECRET"], algorithm="HS256")

        def documents() -> httpx.Response | None:
            assert desk.poll() is None, screen.read_text()
            try:
                return httpx.get(f"{url}/documents", headers={"Authorization": f"Bearer {token}"})
            except httpx.TransportError:
                return None

        answered = wait_until(documents, 60)
        assert answered is not None
        assert answered.json() == {"documents": [], "next": None}
    finally:
        desk.send_signal(signal.SIGINT)
    assert desk.wait(30) == 0, screen.read_text()
    with pytest.raises(httpx.TransportError):
        httpx.get(f"{url}/healthz")
