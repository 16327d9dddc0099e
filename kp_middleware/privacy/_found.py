"""What was taken out, without the value."""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from kp_middleware.privacy._signs import PLACEHOLDER


class Found(NamedTuple):
    """Something that was taken out: where it was, what it was, and how long."""

    path: str
    label: str
    length: int


def counted(found: Iterable[Found]) -> Counter[str]:
    """How much of what, by label."""
    return Counter(one.label for one in found)


def count_placeholders(text: str) -> Counter[str]:
    """How much was taken out of a text, by label, whenever that was.

    >>> count_placeholders("[REDACTED:email#1] wrote to [REDACTED:email#2]")
    Counter({'email': 2})
    """
    return Counter(match["label"] for match in PLACEHOLDER.finditer(text) if match["label"])
