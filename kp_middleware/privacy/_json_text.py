"""JSON in a text, read so that writing it again loses nothing, and the ways to write a number."""

import json
import math
from collections.abc import Iterator
from decimal import Decimal


def document_in(text: str) -> object:
    """The object, list or string that a text is the JSON of; None if it is not certain which."""
    if text.lstrip()[:1] not in {"{", "[", '"'}:
        return None
    try:
        parsed: object = json.loads(
            text, parse_float=_finite, parse_constant=_finite, object_pairs_hook=unique
        )
    except (ValueError, RecursionError):
        return None
    return parsed


def _finite(literal: str) -> float:
    """A number that can be written again."""
    number = float(literal)
    if not math.isfinite(number):
        raise ValueError("not a number of JSON")
    return number


def unique(members: list[tuple[str, object]]) -> dict[str, object]:
    """The members of a JSON object, none of which hides another.

    Raises:
        ValueError: If a key comes twice.
    """
    document = dict(members)
    if len(document) < len(members):
        raise ValueError("a key comes twice")
    return document


def ways_to_write(value: float, *, all_ways: bool) -> Iterator[str]:
    """How a number is written: its digits, if they are many; else as in JSON, or without an e."""
    is_whole = isinstance(value, int) or value.is_integer()
    digits = str(abs(int(value))) if is_whole else ""
    if len(digits) > 4 or (all_ways and digits):
        yield digits
    if all_ways and math.isfinite(value):
        yield from dict.fromkeys((json.dumps(value), format(Decimal(repr(value)), "f")))
