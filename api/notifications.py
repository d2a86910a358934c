"""What a user is told: over a WebSocket as it happens, and by asking."""

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any

import anyio.to_thread
from fastapi import APIRouter, Query, Request, Response, WebSocket, WebSocketDisconnect
from sqlalchemy.exc import SQLAlchemyError

from api.callers import Owner, UserToken, read_token
from api.language import Language, PreferredLanguage, explanation, preferred, spoken
from api.listeners import Crowded
from api.metrics import LISTENING
from api.openapi import example, problems
from api.problems import Problem, problem_of
from api.runtime import Runtime
from api.shapes import Limit, PathId, Shape, Time, answer
from domain.errors import InvalidRequest
from domain.notify import Cursor, News, Notification, news_of, read_notification

log = logging.getLogger(__name__)

router = APIRouter(prefix="/notifications", tags=["notifications"])

PROTOCOL = "bearer"
PAGE = 50
SEND_SECONDS = 10.0
"""A client that takes nothing for so long is taken for dead; what it missed waits for its cursor."""

RETRY_SECONDS = 2.0
TOKEN_OVER = 4401
SHUTTING_DOWN = 1012

CURSOR = "opaque; `cursor` of the last notification you have"


class NotificationShape(Shape):
    """``cursor``: give it back as ``after`` to hear what came after this one."""

    id: int
    type: str
    document_id: int
    version_id: int
    payload: dict[str, Any]
    explanation: str | None
    created_at: Time
    read_at: Time | None
    cursor: str

    @classmethod
    def told(cls, one: Notification, language: Language) -> "NotificationShape":
        return cls(
            id=one.id,
            type=one.type,
            document_id=one.document_id,
            version_id=one.version_id,
            payload=dict(one.payload),
            explanation=explained(one.payload, language),
            created_at=one.created_at,
            read_at=one.read_at,
            cursor=str(one.cursor),
        )


class NotificationPage(Shape):
    """``cursor``: ask again with it as ``after``, also when nothing came."""

    notifications: list[NotificationShape]
    cursor: str
    complete: bool


A_NOTIFICATION: dict[str, Any] = {
    "id": 4,
    "type": "DOCUMENT_FAILED",
    "documentId": 5,
    "versionId": 9,
    "payload": {
        "name": "환불 정책.pdf",
        "versionNo": 1,
        "stage": "PARSING",
        "failureType": "DOCUMENT_CONTENT_INVALID",
        "failureReason": "PASSWORD_REQUIRED",
        "errorMessage": "the PDF is encrypted",
        "searchable": False,
    },
    "explanation": "암호로 보호된 문서입니다. 암호를 해제한 뒤 다시 올려 주세요.",
    "createdAt": "2026-11-30T10:00:25Z",
    "readAt": None,
    "cursor": "AQAAAAAAAAMp",
}


def explained(payload: Mapping[str, Any], language: Language) -> str | None:
    if "failureType" not in payload:
        return None
    return explanation(language, payload["failureType"], payload.get("failureReason"))


@router.get(
    "",
    response_model=NotificationPage,
    responses=problems()
    | {200: example({"notifications": [A_NOTIFICATION], "cursor": "AQAAAAAAAAMp", "complete": True})},
)
def notifications(
    request: Request,
    owner_id: Owner,
    language: PreferredLanguage,
    limit: Limit = 50,
    after: Annotated[str | None, Query(description=CURSOR, max_length=10_000)] = None,
) -> Response:
    """The caller's notifications after the cursor, in the order they were written; without one, from the oldest."""
    cursor = Cursor.parse(after) if after is not None else None
    news = Runtime.of(request).database.run(lambda connection: news_of(connection, owner_id, cursor, limit))
    page = NotificationPage(
        notifications=[NotificationShape.told(one, language) for one in news.notifications],
        cursor=str(news.cursor),
        complete=news.complete,
    )
    return answer(page, headers=spoken(language))


@router.post(
    "/{notificationId}/read",
    status_code=204,
    responses=problems("NOT_FOUND") | {204: {"description": "Read, now or before"}},
)
def read(request: Request, owner_id: Owner, notificationId: PathId) -> Response:  # noqa: N803 - as the path names it
    """Note that the caller has read it. May be repeated."""
    Runtime.of(request).database.run(lambda connection: read_notification(connection, notificationId, owner_id))
    return Response(status_code=204)


@router.websocket("")
async def listen(websocket: WebSocket) -> None:
    """First what was missed since ``after`` (without it, what was not read), then each as it comes, once.

    The token comes as ``Sec-WebSocket-Protocol: bearer, <jwt>``: a URL would end up in logs.
    """
    runtime = Runtime.of(websocket)
    try:
        token = read_token(offered_token(websocket), runtime.settings.jwt_secret)
        after = websocket.query_params.get("after")
        cursor = Cursor.parse(after) if after else None
        with runtime.listeners.listening(token.owner_id) as something_new:
            await websocket.accept(subprotocol=PROTOCOL)
            LISTENING.inc()
            try:
                await serve(websocket, runtime, token, cursor, something_new)
            finally:
                LISTENING.dec()
    except (Problem, InvalidRequest) as error:
        await websocket.send_denial_response(problem_of(error).response())
    except Crowded:
        await websocket.send_denial_response(Problem("TOO_BUSY", "too many listeners already").response())


def offered_token(websocket: WebSocket) -> str | None:
    """The token of ``bearer, <jwt>``; None where these two were not offered."""
    offered = [one.strip() for one in websocket.headers.get("sec-websocket-protocol", "").split(",")]
    return offered[1] if len(offered) == 2 and offered[0] == PROTOCOL else None


async def serve(
    websocket: WebSocket, runtime: Runtime, token: UserToken, cursor: Cursor | None, something_new: asyncio.Event
) -> None:
    """Send until the client leaves, stops taking, or its token ends. Holds up nobody else: all waits are its own."""
    telling = asyncio.create_task(tell(websocket, runtime, token.owner_id, cursor, something_new))
    hearing = asyncio.create_task(until_gone(websocket))
    left = (token.expires_at - datetime.now(UTC)).total_seconds() if token.expires_at else None
    code = None
    try:
        done, _ = await asyncio.wait({telling, hearing}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        code = TOKEN_OVER if not done else None
    except asyncio.CancelledError:
        code = SHUTTING_DOWN
        raise
    finally:
        for task in (telling, hearing):
            task.cancel()
        for ended in await asyncio.gather(telling, hearing, return_exceptions=True):
            if isinstance(ended, Exception) and not isinstance(ended, WebSocketDisconnect):
                log.error("a listener ended: %s", type(ended).__name__)
        if code is not None:
            with contextlib.suppress(Exception):
                await asyncio.wait_for(websocket.close(code), 1)


async def until_gone(websocket: WebSocket) -> None:
    """Take what the client sends, which means nothing, until it is gone."""
    while (await websocket.receive())["type"] != "websocket.disconnect":
        pass


async def tell(
    websocket: WebSocket, runtime: Runtime, owner_id: str, cursor: Cursor | None, something_new: asyncio.Event
) -> None:
    language = preferred(websocket.headers.get("accept-language", ""))
    unread = cursor is None
    while True:
        something_new.clear()
        ask = partial(news_of, owner_id=owner_id, after=cursor, limit=PAGE, unread=unread)
        try:
            news: News = await anyio.to_thread.run_sync(runtime.database.run, ask, limiter=runtime.listeners.threads)
        except SQLAlchemyError:  # away: the client stays, and misses nothing
            await asyncio.sleep(RETRY_SECONDS)
            continue
        for one in news.notifications:
            text = NotificationShape.told(one, language).model_dump_json(by_alias=True)
            try:
                await asyncio.wait_for(websocket.send_text(text), SEND_SECONDS)
            except (TimeoutError, WebSocketDisconnect, RuntimeError):
                return
        cursor = news.cursor
        if news.complete:
            unread = False
            await something_new.wait()
