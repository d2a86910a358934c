"""What the OpenAPI page says beyond what FastAPI finds out by itself: problems, and an example of every answer."""

from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from api.problems import MEDIA_TYPE, RETRY_AFTER_SECONDS, STATUS_OF

DESCRIPTION = """
Holdfast indexes documents for search. Users upload, watch, search and are notified; workers in any language claim
jobs, report what they made, and report failures. Every error is `application/problem+json` with a stable `code`.

An answer is sent after its commit. Calls may be repeated: a failure or a completion reported twice gets the stored
result again, byte for byte, and an upload with the same `Idempotency-Key` its first result. `503` comes with
`Retry-After`.
"""

TITLES = {
    401: "The token is missing, forged or over",
    403: "No such token is configured: these calls are closed",
    404: "There is no such thing, or it is not yours",
    408: "The body came too slowly",
    409: "It is not so that this can be done",
    413: "The body is too long",
    422: "The request does not say what the call needs",
    500: "A fault of the server, which logged it",
    503: "Something needed is away, or there is too much to do: repeat the request later",
}

PROBLEM_SCHEMA: dict[str, Any] = {
    "title": "Problem",
    "description": "RFC 9457. `code` is stable; `detail` is for people.",
    "type": "object",
    "required": ["type", "title", "status", "code", "detail"],
    "properties": {
        "type": {"type": "string", "const": "about:blank"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "code": {"type": "string", "enum": sorted(STATUS_OF)},
        "detail": {"type": "string"},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["where", "what"],
                "properties": {"where": {"type": "string"}, "what": {"type": "string"}},
            },
        },
    },
}


Responses = dict[int | str, dict[str, Any]]


def problems(*codes: str, secured: bool = True) -> Responses:
    """The problems of a call for ``responses=``; those that any call can have are added."""
    always = ["INVALID_REQUEST", "TOO_LARGE", "INTERNAL_ERROR", "DATABASE_UNAVAILABLE", "TOO_BUSY"]
    found: Responses = {}
    for code in [*codes, *(["UNAUTHENTICATED", "FORBIDDEN"] if secured else []), *always]:
        status = STATUS_OF[code]
        response = found.setdefault(
            status,
            {
                "description": TITLES[status],
                "content": {
                    MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}, "examples": {}},
                },
            },
        )
        response["content"][MEDIA_TYPE]["examples"][code] = {
            "value": {
                "type": "about:blank",
                "title": HTTPStatus(status).phrase,
                "status": status,
                "code": code,
                "detail": "…",
            }
        }
        if status == 503:
            response["headers"] = {
                "Retry-After": {"schema": {"type": "integer", "example": RETRY_AFTER_SECONDS}, "description": "seconds"}
            }
        if status == 401:
            response["headers"] = {"WWW-Authenticate": {"schema": {"type": "string", "example": "Bearer"}}}
    return found


def example(value: Any, description: str = "Done", media_type: str = "application/json") -> dict[str, Any]:
    """A successful answer with its example, for ``responses=``."""
    return {"description": description, "content": {media_type: {"example": value}}}


def install(app: FastAPI) -> None:
    """Give the app its OpenAPI document, made once."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = get_openapi(
                title="Holdfast", version=app.version, description=DESCRIPTION, routes=app.routes, tags=app.openapi_tags
            )
            schemas = document["components"]["schemas"]
            schemas["Problem"] = PROBLEM_SCHEMA
            for unused in ("HTTPValidationError", "ValidationError"):
                schemas.pop(unused, None)
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]
