"""Every call of the OpenAPI document, with what it describes and with what it does not, ends in no server error."""

import subprocess
import sys
from pathlib import Path

from tests.api.conftest import ADMIN_TOKEN, ApiProcess, HttpWorker, soon, user_token
from tests.conftest import Engines
from tests.domain.indexing import Indexing

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "missing_required_header",
    "unsupported_method",
    "ignored_auth",
)


def test_no_call_ends_in_a_server_error_and_each_answers_as_it_is_described(
    api_process: ApiProcess, engines: Engines, tmp_path: Path
) -> None:
    with engines.app.begin() as connection:
        steps = Indexing(connection)
        for number in range(3):
            steps.index(f"{number}.txt")
        for number in range(20):
            steps.upload(f"waiting {number}.txt")
    with api_process.admin() as admin:
        HttpWorker(admin).claim(3)
    callers = {"^/admin": ADMIN_TOKEN, "^/(?!admin)": user_token("ann", exp=soon(3600))}
    for paths, token in callers.items():
        command = [
            *(sys.executable, "-m", "schemathesis.cli", "run", f"{api_process.url}/openapi.json"),
            *("--include-path-regex", paths, "--header", f"Authorization: Bearer {token}"),
            *("--checks", ",".join(CHECKS), "--phases", "examples,coverage,fuzzing"),
            *("--max-examples", "4", "--seed", "1", "--no-shrink", "--no-color", "--warnings", "off"),
            "--suppress-health-check=all",
            "--continue-on-failure",
        ]
        ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=280)
        assert ended.returncode == 0, ended.stdout[-6_000:] + ended.stderr[-2_000:]
    assert api_process.process.poll() is None
