"""Reading XML as a stream of events: no tree is built, so the memory does not grow with the document."""

from collections.abc import Callable, Iterable
from typing import Protocol
from xml.parsers import expat  # with a DOCTYPE refused there is no entity to expand or to fetch

from .invalid import Reason, content_invalid


class Handler(Protocol):
    """What a format does with its XML. Names come without their namespace prefix."""

    def start(self, name: str, attributes: dict[str, str]) -> None: ...

    def end(self, name: str) -> None: ...

    def characters(self, text: str) -> None: ...


def read_xml(pieces: Iterable[bytes], handler: Handler | None, what: str) -> None:
    """Feed a whole XML document to ``handler``.

    Args:
        handler: None only checks it.
        what: the part of the document that this is, for messages.

    Raises:
        StageFailed: CORRUPT when it is not well-formed, ARCHIVE_UNSAFE when it declares entities.
    """
    parser = expat.ParserCreate()
    if handler is not None:
        parser.buffer_text = True
        parser.StartElementHandler = lambda name, attributes: handler.start(_local(name), attributes)
        parser.EndElementHandler = lambda name: handler.end(_local(name))
        parser.CharacterDataHandler = handler.characters
    parser.StartDoctypeDeclHandler = _refuse_doctype(what)
    try:
        for piece in pieces:
            parser.Parse(piece, False)
        parser.Parse(b"", True)
    except (expat.ExpatError, ValueError, LookupError) as error:  # the last: an encoding that does not exist
        raise content_invalid(Reason.CORRUPT, f"the document is damaged: {what}: {error}") from error


def _local(name: str) -> str:
    return name.rpartition(":")[2]


def _refuse_doctype(what: str) -> Callable[..., None]:
    def refuse(*_: object) -> None:
        raise content_invalid(
            Reason.ARCHIVE_UNSAFE, f"the document was not opened: {what} has a DOCTYPE, which could hide entities"
        )

    return refuse
