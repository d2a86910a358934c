"""What counts as no text."""

import re

# Spaces, controls, and what is there without being seen: soft hyphens, zero-width marks, replacements.
_VISIBLE = re.compile("[^\\s\\x00-\\x1f\\u00ad\\u200b-\\u200f\\u2060\\ufeff\\ufffd]")


def is_blank(text: str) -> bool:
    """Whether nothing in ``text`` can be seen."""
    return _VISIBLE.search(text) is None
