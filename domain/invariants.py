"""Check the rules of the state machine on a live database: what the database should have refused, and has not."""

from dataclasses import dataclass

from sqlalchemy import Connection

from domain.rules_of_content import content_rules
from domain.rules_of_jobs import RULES as RULES_OF_JOBS
from domain.rules_of_keys import key_rules
from domain.rules_of_schema import schema_rules
from domain.rules_of_versions import RULES as RULES_OF_VERSIONS

NEWEST = 10_000


@dataclass(frozen=True, slots=True)
class Violation:
    """A row that breaks a rule. ``rule`` is the name of the constraint or trigger that should have refused it."""

    rule: str
    table: str
    row_id: int | str
    what: str
    remedy: str


def check_invariants(connection: Connection, limit_per_rule: int = 20, newest: int | None = NEWEST) -> list[Violation]:
    """Every rule, one query each, at most ``limit_per_rule`` violations of each; an empty list is a healthy database.

    Only reads, also in a READ ONLY transaction, and takes no lock: each query is one snapshot, in which every
    committed change is whole, so that work going on meanwhile is never mistaken for a violation.

    Jobs, attempts, versions and documents are judged whole, from their partial indexes or in one pass: about ten
    seconds for a million jobs. Content and history are judged on the newest rows of each table.

    Args:
        newest: how many rows of chunks, embeddings, parsed texts and events, and the content of how many versions;
            None for all, which reads all content.
    """
    rules = [
        *schema_rules(),
        *RULES_OF_JOBS,
        *RULES_OF_VERSIONS,
        *key_rules(newest),
        *content_rules(newest),
    ]
    violations = []
    for rule in rules:
        for row in connection.execute(rule.broken.limit(limit_per_rule)):
            found = dict(row._mapping)
            violations.append(
                Violation(
                    rule=rule.name.format(**found),
                    table=rule.table.format(**found),
                    row_id=found["row_id"],
                    what=rule.what.format(**found),
                    remedy=rule.remedy.format(**found),
                )
            )
    return violations
