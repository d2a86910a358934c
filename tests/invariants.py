"""The checker of live databases, asked as one statement, for tests that ask after every step."""

from functools import cache
from typing import Any

from sqlalchemy import Connection, literal, select, union_all
from sqlalchemy.dialects import postgresql

from domain.invariants import NEWEST, Violation, check_invariants
from domain.rules_of_content import content_rules
from domain.rules_of_jobs import RULES as RULES_OF_JOBS
from domain.rules_of_keys import key_rules
from domain.rules_of_versions import RULES as RULES_OF_VERSIONS


@cache
def _any_violation() -> tuple[str, dict[str, Any]]:
    """Whether any row breaks any rule. Compiled once: building the statements anew takes longer than to run them."""
    rules = [*RULES_OF_JOBS, *RULES_OF_VERSIONS, *key_rules(NEWEST), *content_rules(NEWEST)]
    broken = union_all(*(select(literal(rule.name)).where(rule.broken.exists()) for rule in rules))
    dialect = postgresql.psycopg.dialect()  # type: ignore[no-untyped-call]
    compiled = broken.compile(dialect=dialect, compile_kwargs={"render_postcompile": True})
    return str(compiled), dict(compiled.construct_params())


def violations(connection: Connection) -> list[Violation]:
    """Those that ``check_invariants`` finds among rows; the schema, which no test changes under way, is not asked."""
    if connection.exec_driver_sql(*_any_violation()).first() is None:
        return []
    return check_invariants(connection)
