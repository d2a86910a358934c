"""``documents policy``: which failures are retried, and when."""

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import click

from domain.errors import NotFound
from domain.policy import FailurePolicy, read_policies, set_policy
from tasks.cli_output import duration, print_json, print_table
from tasks.database import run_transaction, transaction

UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400}


def show_policies(as_json: bool) -> None:
    with transaction() as connection:
        policies = read_policies(connection)
    if as_json:
        print_json({"policies": policies})
        return
    headings = ("FAILURE TYPE", "RETRIED", "BASE DELAY", "FACTOR", "MAX DELAY")
    print_table(headings, [row(policy) for policy in policies], empty="no policies: is the database migrated?")


def row(policy: FailurePolicy) -> tuple[str, ...]:
    delays = (duration(policy.base_delay), f"{policy.factor:g}", duration(policy.max_delay))
    return (policy.failure_type, "yes" if policy.retryable else "no", *delays)


def change_policy(failure_type: str, changes: Mapping[str, Any], as_json: bool) -> None:
    """Change what was given, keep the rest.

    Raises:
        NotFound, InvalidRequest: as ``set_policy``.
    """
    given = {name: value for name, value in changes.items() if value is not None}
    if not given:
        raise click.UsageError("say what to change: --retryable, --no-retryable, --base-delay, --factor, --max-delay")
    for name in ("base_delay", "max_delay"):
        if name in given:
            given[name] = parse_duration(given[name])
    if "factor" in given:
        given["factor"] = Decimal(str(given["factor"]))
    wanted = failure_type.upper()

    def change(connection: Any) -> FailurePolicy:
        known = {policy.failure_type: policy for policy in read_policies(connection)}
        if wanted not in known:
            raise NotFound("failure type", f"{failure_type}; there are {', '.join(sorted(known))}. {failure_type}")
        changed = replace(known[wanted], **given)
        set_policy(connection, changed)
        return changed

    policy = run_transaction(change)
    if as_json:
        print_json(policy)
    else:
        print_table(("FAILURE TYPE", "RETRIED", "BASE DELAY", "FACTOR", "MAX DELAY"), [row(policy)], empty="")


def parse_duration(text: str) -> timedelta:
    """``10s``, ``5m``, ``1h30m``, ``500ms``; a bare number is seconds.

    Raises:
        click.UsageError: anything else.
    """
    compact = text.strip().lower()
    if re.fullmatch(r"\d+(\.\d+)?", compact):
        return timedelta(seconds=float(compact))
    parts = re.findall(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", compact)
    if not parts or "".join(number + unit for number, unit in parts) != compact:
        raise click.UsageError(f"{text!r} is not a duration; write 10s, 5m, 1h30m")
    return timedelta(seconds=sum(float(number) * UNITS[unit] for number, unit in parts))
