"""Every name by which the database can refuse is expected by a test in this folder."""

import ast
import re
from pathlib import Path

from sqlalchemy import Connection

from tests.database.refusals import run

# A unique rule whose columns include the whole primary key can never be broken alone: it is there for the composite
# foreign keys to point at.
CONSTRAINTS = """
    SELECT c.conname FROM pg_constraint c JOIN pg_class t ON t.oid = c.conrelid
    WHERE t.relnamespace = 'public'::regnamespace AND t.relname <> 'alembic_version'
        AND c.contype IN ('c', 'f', 'p', 'u', 'x')
        AND NOT (c.contype = 'u' AND EXISTS (
            SELECT FROM pg_constraint p WHERE p.conrelid = c.conrelid AND p.contype = 'p' AND p.conkey <@ c.conkey))
    UNION
    SELECT i.relname FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid JOIN pg_class t ON t.oid = x.indrelid
    WHERE t.relnamespace = 'public'::regnamespace AND x.indisunique
        AND NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = i.oid)
"""
FUNCTIONS = """
    SELECT p.prosrc FROM pg_proc p
    WHERE p.pronamespace = 'public'::regnamespace
        AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = p.oid AND d.deptype = 'e')
"""
TRIGGERS_NAMED_LIKE_THEIR_RULE = """
    SELECT t.tgname FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid WHERE p.proname = 'refuse_any_change'
"""


def rules(connection: Connection) -> set[str]:
    names = set(run(connection, CONSTRAINTS).scalars()) | set(run(connection, TRIGGERS_NAMED_LIKE_THEIR_RULE).scalars())
    for source in run(connection, FUNCTIONS).scalars():
        calls = re.findall(r"\brefuse\(\s*([^,\s]+)", source)
        names |= {call.strip("'") for call in calls if call != "TG_NAME"}
    return names


def expected() -> set[str]:
    """Every string of these tests; that those which are rules are also expected is for ``refused`` to hold."""
    strings: set[str] = set()
    for file in Path(__file__).parent.glob("test_*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                strings.add(node.value)
    return strings


def test_every_rule_has_a_test_that_breaks_it(connection: Connection) -> None:
    assert sorted(rules(connection) - expected()) == []


def test_every_name_is_one_rule_s_own(connection: Connection) -> None:
    """A name may be given to a CHECK and to the trigger that says the same earlier, never to two tables."""
    names = run(
        connection,
        "SELECT conname FROM pg_constraint WHERE connamespace = 'public'::regnamespace AND contype <> 'n' "
        "GROUP BY conname HAVING count(*) > 1",
    )
    assert list(names.scalars()) == []


def test_no_rule_has_a_name_that_postgresql_made_up(connection: Connection) -> None:
    made_up = re.compile(r"_(check|key|fkey|excl)\d*$")
    names = {name for name in rules(connection) if made_up.search(name)}
    assert names == set()


def test_the_rules_fit_into_a_name(connection: Connection) -> None:
    assert {name for name in rules(connection) if len(name.encode()) > 63} == set()
    assert len(rules(connection)) > 100
