"""What the commands print: JSON for programs, tables and lines for people."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import click
from rich.console import Console
from rich.table import Table


def print_json(document: Any) -> None:
    """One JSON document on stdout: camelCase keys, times in UTC, durations in seconds."""
    click.echo(json.dumps(plain(document), ensure_ascii=False, indent=2))


def plain(value: Any) -> Any:
    """``value`` in the types of JSON. A dataclass becomes an object; its ``timedelta`` fields end in ``Seconds``."""
    if is_dataclass(value) and not isinstance(value, type):
        return plain({field.name: getattr(value, field.name) for field in fields(value)})
    if isinstance(value, Mapping):
        return {json_key(str(key), item): plain(item) for key, item in value.items()}
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Iterable):
        return [plain(item) for item in value]
    return value


def json_key(name: str, value: Any) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest) + ("Seconds" if isinstance(value, timedelta) else "")


def print_table(headings: Sequence[str], rows: Iterable[Sequence[Any]], empty: str) -> None:
    """A table on a terminal, tab-separated lines elsewhere; ``empty`` where there is nothing."""
    lines = [["" if cell is None else str(cell) for cell in row] for row in rows]
    if not lines:
        click.echo(empty)
    elif sys.stdout.isatty():
        Console().print(table(headings, lines))
    else:
        click.echo("\t".join(headings))
        for line in lines:
            click.echo("\t".join(" ".join(cell.split()) for cell in line))


def table(headings: Sequence[str], lines: Iterable[Sequence[str]]) -> Table:
    made = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        made.add_column(heading, overflow="fold")
    for line in lines:
        made.add_row(*(escaped(cell) for cell in line))
    return made


def escaped(text: str) -> str:
    """A name such as ``[red]`` is a name, not markup."""
    return text.replace("[", r"\[")


def clock(time: datetime | None) -> str:
    """A time as people here read it: today without the date."""
    if time is None:
        return ""
    local = time.astimezone()
    today = datetime.now(UTC).astimezone().date()
    return local.strftime("%H:%M:%S" if local.date() == today else "%Y-%m-%d %H:%M:%S")


def duration(value: timedelta) -> str:
    """``1h30m``, ``10s``, ``0.5s``."""
    seconds = value.total_seconds()
    if seconds < 60:
        return f"{seconds:g}s"
    parts = []
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "m"), (1, "s")):
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(f"{count:g}{unit}")
    return "".join(parts)


def kind(failure_type: str | None, failure_reason: str | None) -> str:
    """A failure's type and, where there is one, its finer reason."""
    return " ".join(part for part in (failure_type, failure_reason) if part)
