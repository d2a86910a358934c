"""What a reader of one format finds in a document."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Extracted:
    """Text as found, before cleaning. ``pages`` only where the format has them; ``text`` is unused then.

    ``metadata``: what else is worth keeping, small and flat.
    """

    text: str = ""
    pages: tuple[str, ...] = ()
    title: str | None = None
    metadata: dict[str, str | int] = field(default_factory=dict)
