"""A rule of the state machine as a question: which rows break it?"""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select

# What an operator can do. Rows that break a rule were written past the triggers, by a superuser or by the owner
# after disabling one; a new version, or a new document, leaves them behind.
RENEW = "celery -A tasks documents add --force its file again: a new version replaces this one"
REPLACE = "celery -A tasks documents delete {document_id}, then add its file again"
REPAIR = "find out who wrote past the triggers; only a superuser with session_replication_role = replica can repair it"


@dataclass(frozen=True, slots=True)
class Rule:
    """The name that the database refuses by, and a query for the rows that break it all the same.

    ``broken`` has the column ``row_id``, and those that ``what`` and ``remedy`` name in braces.
    """

    name: str
    table: str
    broken: Select[*tuple[Any, ...]]
    what: str
    remedy: str
