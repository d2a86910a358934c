"""A reader of notifications misses none and hears none twice, whatever order transactions commit in."""

import pytest
from sqlalchemy import Connection

from domain.errors import InvalidRequest, NotFound
from domain.failures import FailureType
from domain.notify import Cursor, News, news_of, owners_with_news, read_notification
from domain.statuses import VersionStatus
from tests.conftest import Connect
from tests.domain.indexing import Indexing


def names(news: News) -> list[str]:
    return [f"{one.type} {one.payload['name']}" for one in news.notifications]


def fail_for_good(worker: Indexing, name: str, owner_id: str = "ann") -> None:
    worker.upload(name, owner_id)
    worker.fail(worker.bring_to(VersionStatus.PARSING), FailureType.DOCUMENT_CONTENT_INVALID, "EMPTY", "it is empty")


def test_an_owner_hears_of_final_failures_and_of_searchable_documents_and_nothing_else(connect: Connect) -> None:
    connection = connect()
    worker = Indexing(connection)
    worker.index("a.txt")
    fail_for_good(worker, "b.txt")
    fail_for_good(worker, "of another.txt", "bob")
    worker.upload("c.txt")
    worker.fail(worker.bring_to(VersionStatus.PARSING))  # will be retried: nobody is told
    connection.commit()
    assert names(news_of(connection, "ann")) == ["DOCUMENT_INDEXED a.txt", "DOCUMENT_FAILED b.txt"]


def test_a_cursor_goes_on_behind_what_was_told_also_through_its_text(connect: Connect) -> None:
    connection = connect()
    worker = Indexing(connection)
    for name in ("a", "b", "c", "d", "e"):
        worker.index(name)
        connection.commit()
    heard: list[str] = []
    after = None
    while True:
        page = news_of(connection, "ann", after, limit=2)
        heard += names(page)
        if page.complete:
            break
        after = Cursor.parse(str(page.cursor))
    assert heard == [f"DOCUMENT_INDEXED {name}" for name in ("a", "b", "c", "d", "e")]
    third = news_of(connection, "ann").notifications[2]
    assert names(news_of(connection, "ann", Cursor.parse(str(third.cursor)))) == heard[3:]


def test_a_row_that_commits_late_with_a_low_id_is_told_and_those_before_it_are_not_told_again(
    connect: Connect,
) -> None:
    slow, quick, reader = connect(), connect(), connect()
    first = Indexing(slow)
    slow.commit()
    second = Indexing(quick)
    quick.commit()
    first.index("late.txt")  # written, with the lower id, and not committed
    second.index("early.txt")
    quick.commit()

    heard = news_of(reader, "ann")
    reader.rollback()
    assert names(heard) == ["DOCUMENT_INDEXED early.txt"]
    after = Cursor.parse(str(heard.cursor))
    assert names(news_of(reader, "ann", after)) == []
    reader.rollback()
    slow.commit()
    late = news_of(reader, "ann", after)
    assert names(late) == ["DOCUMENT_INDEXED late.txt"]
    assert late.notifications[0].id < heard.notifications[0].id
    assert names(news_of(reader, "ann", late.cursor)) == []


def test_listeners_are_woken_for_rows_that_commit_late(connect: Connect) -> None:
    slow, reader = connect(), connect()
    worker = Indexing(slow)
    slow.commit()
    worker.index("late.txt")
    nobody, watermark = owners_with_news(reader, ["ann", "bob"], 0)
    reader.rollback()
    assert nobody == set()
    slow.commit()
    assert owners_with_news(reader, ["ann", "bob"], watermark)[0] == {"ann"}
    assert owners_with_news(reader, ["bob"], watermark)[0] == set()


def test_reading_a_notification_is_its_owners_alone_and_can_be_repeated(connection: Connection) -> None:
    Indexing(connection).index("a.txt")
    [told] = news_of(connection, "ann").notifications
    with pytest.raises(NotFound):
        read_notification(connection, told.id, "bob")
    read_notification(connection, told.id, "ann")
    [first] = news_of(connection, "ann").notifications
    read_notification(connection, told.id, "ann")
    assert news_of(connection, "ann").notifications[0].read_at == first.read_at is not None
    assert news_of(connection, "ann", unread=True).notifications == ()


@pytest.mark.parametrize("text", ["", "x", "AAAA", "한국어", "AQAAAAAAAAAAAA", "\ud800", "A" * 20_000, "=", "AQ=="])
def test_a_cursor_that_this_program_did_not_make_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        Cursor.parse(text)
