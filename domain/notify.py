"""What an owner is told: that a document failed for good, or that it can be searched.

The rows are written by the transaction that ends the job. Ids are handed out before commits, so a reader that
remembers the highest id it saw would miss a row with a lower one that is committed later. A ``Cursor`` therefore
remembers transactions: every one below its watermark had ended when it was made, so their rows were all seen; of
the later ones it names each row that was seen.
"""

import base64
import binascii
import struct
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Any, Self

from sqlalchemy import (
    ARRAY,
    BigInteger,
    ColumnElement,
    Connection,
    Text,
    any_,
    cast,
    func,
    literal,
    select,
    true,
    update,
)

from domain.errors import InvalidRequest, NotFound
from domain.tables import Xid8, notifications
from domain.views import require_page

MOST_NAMED = 200
"""Rows that a cursor names; with more, the oldest are left out, and are told again to a client that comes back."""

_PAIR = struct.Struct(">QQ")
_FORMAT = b"\x01"


@dataclass(frozen=True, slots=True)
class Cursor:
    """What a reader has seen: all rows of transactions below ``watermark``, and the rows ``seen`` (id: transaction)."""

    watermark: int = 0
    seen: Mapping[int, int] = field(default_factory=lambda: MappingProxyType({}))

    def __str__(self) -> str:
        """The cursor as text for a client, which gives it back and reads nothing in it."""
        latest = sorted(self.seen.items())[-MOST_NAMED:]
        packed = _FORMAT + struct.pack(">Q", self.watermark) + b"".join(_PAIR.pack(*pair) for pair in latest)
        return base64.urlsafe_b64encode(packed).rstrip(b"=").decode()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a client's cursor.

        Raises:
            InvalidRequest: it was not made by this program.
        """
        try:
            packed = base64.b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
            if packed[:1] != _FORMAT or len(packed) > 9 + MOST_NAMED * _PAIR.size:
                raise ValueError
            (watermark,) = struct.unpack(">Q", packed[1:9])
            seen = dict(_PAIR.iter_unpack(packed[9:]))
            if any(row_id >= 1 << 63 for row_id in seen):
                raise ValueError
        except (ValueError, binascii.Error, struct.error, UnicodeEncodeError):
            raise InvalidRequest("this is not a cursor of an earlier answer: start without one") from None
        return cls(watermark, seen)


@dataclass(frozen=True, slots=True)
class Notification:
    """One thing told to an owner. ``cursor``: give it back to hear what came after this one."""

    id: int
    document_id: int
    version_id: int
    type: str
    payload: Mapping[str, Any]
    created_at: datetime
    read_at: datetime | None
    cursor: Cursor


@dataclass(frozen=True, slots=True)
class News:
    """A page of notifications. ``cursor`` goes on behind it; ``complete``: there was no more at that moment."""

    notifications: tuple[Notification, ...]
    cursor: Cursor
    complete: bool


def news_of(
    connection: Connection, owner_id: str, after: Cursor | None = None, limit: int = 50, unread: bool = False
) -> News:
    """The owner's notifications that the cursor has not seen, in the order they were written; each once.

    Read committed and one statement: what commits later is found with the returned cursor, however low its id.

    Args:
        after: where an earlier answer ended; None begins with the oldest that is kept.
        unread: leave out those that were read.

    Raises:
        InvalidRequest: ``limit`` is not from 1 to 1,000.
    """
    require_page(limit)
    after = after or Cursor()
    horizon = func.pg_snapshot_xmin(func.pg_current_snapshot(), type_=Xid8)
    # The horizon comes with every page, also with an empty one.
    page = (
        select(notifications)
        .where(
            notifications.c.owner_id == owner_id,
            notifications.c.transaction_id >= cast(literal(str(after.watermark), Text), Xid8),
            is_none_of(notifications.c.id, after.seen),
            notifications.c.read_at.is_(None) if unread else true(),
        )
        .order_by(notifications.c.transaction_id, notifications.c.id)
        .limit(limit)
        .subquery("page")
    )
    one_row = select(horizon.label("horizon")).subquery("now")
    rows = connection.execute(select(one_row.c.horizon, page).select_from(one_row).outerjoin(page, true())).all()
    found = [row for row in rows if row.id is not None]
    complete = len(found) < limit
    settled = int(rows[0].horizon)
    watermark = settled if complete else min(settled, int(found[-1].transaction_id))
    watermark = max(watermark, after.watermark)
    seen = dict(after.seen)
    told = []
    for row in sorted(found, key=lambda row: row.id):
        seen[row.id] = int(row.transaction_id)
        told.append((row, Cursor(after.watermark, dict(seen))))
    last = Cursor(watermark, {row_id: xid for row_id, xid in seen.items() if xid >= watermark})
    if told:
        told[-1] = (told[-1][0], last)
    return News(tuple(_notification(row, cursor) for row, cursor in told), last, complete)


def owners_with_news(connection: Connection, owner_ids: Collection[str], watermark: int) -> tuple[set[str], int]:
    """Which of the owners have rows of transactions from ``watermark`` on, and the watermark to ask with next.

    One query for all who listen. It may name an owner again whose rows were told already, never leave one out.
    """
    now = connection.execute(select(func.pg_snapshot_xmin(func.pg_current_snapshot(), type_=Xid8))).scalar_one()
    rows = connection.execute(
        select(notifications.c.owner_id)
        .distinct()
        .where(
            notifications.c.owner_id == any_(cast(literal(sorted(owner_ids), ARRAY(Text)), ARRAY(Text))),
            notifications.c.transaction_id >= cast(literal(str(watermark), Text), Xid8),
        )
    )
    return set(rows.scalars()), int(now)


def read_notification(connection: Connection, notification_id: int, owner_id: str) -> None:
    """Note that the owner has read it; the first time counts. Safe to repeat.

    Raises:
        NotFound: no such notification, or not this owner's.
    """
    found = connection.execute(
        update(notifications)
        .where(notifications.c.id == notification_id, notifications.c.owner_id == owner_id)
        .values(read_at=func.coalesce(notifications.c.read_at, func.clock_timestamp()))
    )
    if found.rowcount != 1:
        raise NotFound("notification", notification_id)


def is_none_of(column: ColumnElement[int], ids: Iterable[int]) -> ColumnElement[bool]:
    return ~(column == any_(cast(literal(sorted(ids), ARRAY(BigInteger)), ARRAY(BigInteger))))


def _notification(row: Any, cursor: Cursor) -> Notification:
    return Notification(
        row.id, row.document_id, row.version_id, row.type, row.payload, row.created_at, row.read_at, cursor
    )
