"""docs/http.md was really run: each command is run again, and what it shows is held equal.

``UPDATE_DOCUMENTATION=1`` writes what they show now into the page.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.api.conftest import ADMIN_TOKEN, PROJECT, Api, user_token

PAGE = PROJECT / "docs" / "http.md"
BLOCK = re.compile(r"(?<=^```console\n).*?(?=^```$)", re.MULTILINE | re.DOTALL)
MARK = "--- end of command"

# What is another each time.
CHANGING = [
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}"), "UUID"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)"), "TIME"),
    (re.compile(r'("cursor": ?)"[^"]*"'), r'\1"CURSOR"'),
    (re.compile(r"file:///\S*?/documents/"), "file:///var/lib/holdfast/documents/"),
]


def steady(text: str) -> str:
    for pattern, replacement in CHANGING:
        text = pattern.sub(replacement, text)
    return text


def commands_of(block: str) -> list[str]:
    return [line.removeprefix("$ ") for line in block.splitlines() if line.startswith("$ ")]


@pytest.mark.skipif(not (shutil.which("curl") and shutil.which("jq")), reason="needs curl and jq")
def test_the_conversations_of_the_documentation_go_as_they_are_shown(api: Api, tmp_path: Path) -> None:
    page = PAGE.read_text()
    commands = [command for block in BLOCK.findall(page) for command in commands_of(block)]
    script = "".join(f"{command}\necho; echo '{MARK}'\n" for command in commands)
    environment = {
        "PATH": os.environ["PATH"],
        "LC_ALL": "C.UTF-8",
        "API": api.url,
        "ADMIN_TOKEN": ADMIN_TOKEN,
        "USER_TOKEN": user_token("ann"),
    }
    ended = subprocess.run(
        ["bash"], input=script, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True, timeout=120
    )
    assert ended.stderr == ""
    shown = iter(zip(commands, ended.stdout.split(f"{MARK}\n"), strict=False))

    def as_run(block: re.Match[str]) -> str:
        lines = ""
        for _ in commands_of(block[0]):
            command, output = next(shown)
            said = output.strip("\n")
            lines += f"$ {command}\n" + (f"{said}\n" if said else "")
        return lines

    now = BLOCK.sub(as_run, page)
    if os.environ.get("UPDATE_DOCUMENTATION"):
        PAGE.write_text(re.sub(r"file:///\S*?/documents/", "file:///var/lib/holdfast/documents/", now))
    assert steady(PAGE.read_text()) == steady(now)
