"""Limits on what is kept of a run, and the truncation of texts."""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from kp_middleware.settings import Settings

NAME_BYTES: Final = 256
"""The limit of a name: of a tool, an agent or a class."""

_MOST_FIELD_BYTES: Final = 1_000_000  # a text of more than 2**20 characters cannot be redacted
_REPLACED = "\N{REPLACEMENT CHARACTER}"
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits at capture, so that no run can exhaust the agent's memory.

    Attributes:
        field_bytes: Size of one text or one input, in UTF-8.
        steps: Number of steps of a trace, at least 2; a longer run keeps its first and last steps
            and a marker between them, which counts as one.
        trace_bytes: Size of a trace; a larger run keeps its beginning and its end, half of it each.
    """

    field_bytes: int = 64 * 1024
    steps: int = 1000
    trace_bytes: int = 1024 * 1024

    @classmethod
    def of(cls, settings: "Settings") -> Self:
        """Return the limits that the user set."""
        return cls(
            field_bytes=min(settings.max_field_bytes, _MOST_FIELD_BYTES),
            steps=settings.max_steps,
            trace_bytes=settings.max_trace_bytes,
        )


def bounded_text(text: str, limit_bytes: int) -> str:
    """Return the text, truncated to a size, without characters that registry databases reject.

    A note at the cut gives the original length. U+0000 and lone surrogates become U+FFFD.

    >>> bounded_text("a long story", 6)
    'a long… [cut: 12 characters in all]'
    """
    if len(text) <= limit_bytes and text.isascii() and "\0" not in text:
        return text  # nearly always
    kept = text[:limit_bytes]
    if "\0" in kept:
        kept = kept.replace("\0", _REPLACED)
    if not kept.isascii():
        kept = _LONE_SURROGATE.sub(_REPLACED, kept)
        kept = kept.encode()[:limit_bytes].decode("utf-8", "ignore")
    if len(kept) < len(text):
        return f"{kept}… [cut: {len(text)} characters in all]"
    return kept


def size_bytes(text: str) -> int:
    """Return the size in UTF-8 of a text that `bounded_text` returned."""
    return len(text) if text.isascii() else len(text.encode())
