"""What every request and answer is made of: camelCase fields, times in UTC, ids that a bigint can hold."""

import re
from datetime import UTC, datetime
from typing import Annotated, Any, Self

from fastapi import Path, Query, Response
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel
from starlette.convertors import Convertor, register_url_convertor

LARGEST_ID = 2**63 - 1
LARGEST_INT = 2**31 - 1
LARGEST_PAGE = 100

_HALF_CHARACTER = re.compile("[\ud800-\udfff]")


def _in_utc(time: datetime) -> datetime:
    return time.astimezone(UTC)


def _whole_characters(text: Any) -> Any:
    """A lone surrogate, which UTF-8 cannot write, becomes U+FFFD: a failure is recorded whatever its text is."""
    return _HALF_CHARACTER.sub("\ufffd", text) if isinstance(text, str) else text


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be blank")
    return text


def _storable(text: str) -> str:
    if "\x00" in text or _HALF_CHARACTER.search(text):
        raise ValueError("must not hold a NUL or half a character")
    return text


class Digits(Convertor[str]):
    """A path parameter that is an id and no other word, such as ``claim``. Starlette's own ``int`` fails on thousands
    of digits."""

    regex = "[0-9]{1,25}"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("digits", Digits())

Time = Annotated[datetime, AfterValidator(_in_utc)]
"""The same instant has the same text, whatever time zone the database session is set to."""

Id = Annotated[int, Field(strict=True, ge=1, le=LARGEST_ID)]
PathId = Annotated[int, Path(ge=1, le=LARGEST_ID)]
AfterId = Annotated[int | None, Query(alias="after", ge=1, le=LARGEST_ID, description="`next` of the page before")]
Limit = Annotated[int, Query(ge=1, le=LARGEST_PAGE, description="how many at most")]
AnyText = Annotated[str, BeforeValidator(_whole_characters), AfterValidator(_not_blank)]
Line = Annotated[str, Field(min_length=1, max_length=255), AfterValidator(_storable), AfterValidator(_not_blank)]
Storable = Annotated[str, AfterValidator(_storable)]
StoredText = Annotated[Storable, AfterValidator(_not_blank)]


class Shape(BaseModel):
    """A JSON object. Unknown fields of a request are refused: a misspelt one would be ignored silently."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, from_attributes=True, extra="forbid")

    @classmethod
    def of(cls, source: object) -> Self:
        """The shape of a domain's dataclass with the same field names."""
        return cls.model_validate(source)


def answer(shape: Shape, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """The shape as JSON; equal shapes are equal bytes."""
    return Response(shape.model_dump_json(by_alias=True), status, headers, "application/json")
