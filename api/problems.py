"""Every error as RFC 9457 ``application/problem+json`` with a stable ``code``; never a stack trace or a parameter.

Domain errors are translated here and nowhere else, so that an endpoint raises nothing of its own.
"""

import http
import json
import logging
import traceback
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.exceptions import HTTPException

from api.database import sqlstate_of
from domain.errors import (
    AttemptConflict,
    AttemptNotCurrent,
    ClaimLost,
    DocumentBusy,
    DomainError,
    InvalidRequest,
    NotFound,
    NothingToCancel,
    NotRetryable,
    RequestConflict,
    StageNotCurrent,
    StageNotDue,
    VersionIncomplete,
)
from domain.failures import FailureType, StageFailed

log = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_SECONDS = 2
MOST_ERRORS = 20  # of one request that are told

STATUS_OF: Mapping[str, int] = {
    "INVALID_REQUEST": 422,
    "UNAUTHENTICATED": 401,
    "FORBIDDEN": 403,
    "NOT_FOUND": 404,
    "METHOD_NOT_ALLOWED": 405,
    "REQUEST_TIMEOUT": 408,
    "CLAIM_MISMATCH": 409,
    "LEASE_EXPIRED": 409,
    "ATTEMPT_CONFLICT": 409,
    "ATTEMPT_NOT_CURRENT": 409,
    "STAGE_NOT_CURRENT": 409,
    "VERSION_INCOMPLETE": 409,
    "NOT_RETRYABLE": 409,
    "NOTHING_TO_CANCEL": 409,
    "REQUEST_CONFLICT": 409,
    "TOO_LARGE": 413,
    "INTERNAL_ERROR": 500,
    "DATABASE_UNAVAILABLE": 503,
    "STORAGE_UNAVAILABLE": 503,
    "DOCUMENT_BUSY": 503,
    "TOO_BUSY": 503,
}
"""Every code there is. The codes are interface; the details are for people and may change."""

_CODE_OF_ERROR: Mapping[type[DomainError], str] = {
    InvalidRequest: "INVALID_REQUEST",
    NotFound: "NOT_FOUND",
    AttemptConflict: "ATTEMPT_CONFLICT",
    AttemptNotCurrent: "ATTEMPT_NOT_CURRENT",
    StageNotCurrent: "STAGE_NOT_CURRENT",
    StageNotDue: "STAGE_NOT_CURRENT",
    VersionIncomplete: "VERSION_INCOMPLETE",
    NotRetryable: "NOT_RETRYABLE",
    NothingToCancel: "NOTHING_TO_CANCEL",
    RequestConflict: "REQUEST_CONFLICT",
    DocumentBusy: "DOCUMENT_BUSY",
}
_CODE_OF_STATUS = {400: "INVALID_REQUEST", 404: "NOT_FOUND", 405: "METHOD_NOT_ALLOWED", 413: "TOO_LARGE"}

# What PostgreSQL answers while it, its disk, its locks or its schema cannot serve: another time it will.
_UNAVAILABLE = ("08", "53", "57", "58", "25006", "55P03", "40001", "40P01", "42P01", "42703", "3D000", "28")


class Problem(HTTPException):
    """An error that an endpoint, a dependency or a middleware answers with."""

    def __init__(self, code: str, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(STATUS_OF[code], detail, dict(headers or {}))
        self.code = code
        self.errors: list[dict[str, str]] | None = None

    def response(self) -> Response:
        body: dict[str, Any] = {
            "type": "about:blank",
            "title": http.HTTPStatus(self.status_code).phrase,
            "status": self.status_code,
            "code": self.code,
            "detail": self.detail,
        }
        if self.errors:
            body["errors"] = self.errors
        headers = dict(self.headers or {})
        if self.status_code == 503:
            headers.setdefault("Retry-After", str(RETRY_AFTER_SECONDS))
        # ASCII only: a part of the request may hold half a character, which no UTF-8 can.
        return Response(json.dumps(body), self.status_code, headers, MEDIA_TYPE)


def problem_of(error: Exception) -> Problem:
    """What a caller is told of ``error``; one that nobody foresaw is logged here, without its text."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, HTTPException):
        return _problem_of_http(error)
    if isinstance(error, RequestValidationError):
        return _problem_of_validation(error)
    if isinstance(error, ClaimLost):
        return Problem("LEASE_EXPIRED" if error.reason == "expired" else "CLAIM_MISMATCH", str(error))
    if isinstance(error, DomainError):
        return Problem(_CODE_OF_ERROR[type(error)], str(error))
    if isinstance(error, StageFailed):
        return _problem_of_stage(error)
    if isinstance(error, SQLAlchemyError) and (problem := _problem_of_database(error)) is not None:
        return problem
    # Its text may hold what a document says, as the DETAIL of a database error does.
    log.error("%s\n%s", type(error).__name__, "".join(traceback.format_tb(error.__traceback__)))
    return Problem("INTERNAL_ERROR", "this is a fault of the server; it was logged")


def _problem_of_http(error: HTTPException) -> Problem:
    problem = Problem(_CODE_OF_STATUS.get(error.status_code, "INVALID_REQUEST"), str(error.detail), error.headers)
    if error.status_code == 400:  # the framework's word for a body that cannot be read
        problem.detail = "the body cannot be read as what its Content-Type says"
    return problem


def _problem_of_validation(error: RequestValidationError) -> Problem:
    problem = Problem("INVALID_REQUEST", "the request does not say what this call needs")
    problem.errors = [
        {"where": ".".join(str(part)[:100] for part in one["loc"])[:300], "what": str(one["msg"])[:300]}
        for one in error.errors()[:MOST_ERRORS]
    ]
    if problem.errors:
        problem.detail = f"{problem.errors[0]['where']}: {problem.errors[0]['what']}"
    return problem


def _problem_of_stage(error: StageFailed) -> Problem:
    failure = error.failure
    if failure.reason == "TOO_LARGE":
        return Problem("TOO_LARGE", failure.message)
    if failure.reason in ("SOURCE_MISSING", "SOURCE_REFUSED"):
        return Problem("NOT_FOUND", "the store does not hold these bytes")
    if failure.type != FailureType.STORAGE_UNAVAILABLE:
        log.error("unexpected %s %s", failure.type, failure.reason)
    else:
        log.warning("the store cannot be used: %s", failure.message)
    return Problem("STORAGE_UNAVAILABLE", "the store of documents cannot be used now; repeat the request later")


def _problem_of_database(error: SQLAlchemyError) -> Problem | None:
    if isinstance(error, PoolTimeout):
        return Problem("DATABASE_UNAVAILABLE", "no connection to the database became free; repeat the request later")
    if not isinstance(error, DBAPIError):
        return None
    state = sqlstate_of(error)
    if state.startswith(_UNAVAILABLE) or (not state and (error.connection_invalidated or _broke(error))):
        log.warning("the database cannot serve: %s %s", type(error.orig).__name__, state or "no answer")
        return Problem("DATABASE_UNAVAILABLE", "the database cannot serve now; repeat the request later")
    return None


def _broke(error: DBAPIError) -> bool:
    return type(error.orig).__name__ in ("OperationalError", "InterfaceError", "ConnectionTimeout")


def invalid_output(error: DBAPIError) -> Problem | None:
    """For calls that store what a worker made: the database refused its content. None when that is not why."""
    if sqlstate_of(error)[:2] not in ("22", "23"):
        return None
    diagnosis = getattr(error.orig, "diag", None)
    rule = getattr(diagnosis, "constraint_name", None)
    said = getattr(diagnosis, "message_primary", None) or "the database refused it"
    return Problem("INVALID_REQUEST", f"{rule}: {said}" if rule else said)


def install(app: FastAPI) -> None:
    """Answer every error of the app's endpoints with its problem."""

    async def answer(_: Request, error: Exception) -> Response:
        return problem_of(error).response()

    for kind in (HTTPException, RequestValidationError, DomainError, StageFailed, SQLAlchemyError):
        app.add_exception_handler(kind, answer)
