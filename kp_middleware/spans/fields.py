"""Typed reading of JSON that others wrote: what has another type counts as absent."""

import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

from kp_middleware.recording import bounded_text

Fields: TypeAlias = dict[str, Any]

_MOST_BYTES: Final = 1_000_000
_MOST_EXACT: Final = 2**53
_EARLIEST_S: Final = 631_152_000.0  # 1990: what is earlier or later is no time of a run
_LATEST_S: Final = 4_102_444_800.0  # 2100


def fields(value: object) -> Fields:
    """Return an object, or an empty one."""
    return value if isinstance(value, dict) else {}


def listed(value: object) -> list[Any]:
    """Return a list, or an empty one."""
    return value if isinstance(value, list) else []


def objects(value: object) -> list[Fields]:
    """Return the objects of a list."""
    return [one for one in listed(value) if isinstance(one, dict)]


def text(value: object) -> str:
    """Return a text of bounded size, or an empty one."""
    if not isinstance(value, str):
        return ""
    return value if len(value) < _MOST_BYTES // 4 else bounded_text(value, _MOST_BYTES)


def name(value: object) -> str | None:
    """Return a text that is not empty and that UTF-8 can write, or a number as one; else None."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value) if abs(value) < _MOST_EXACT else None
    if not isinstance(value, str) or not value:
        return None
    return value if value.isascii() else value.encode(errors="replace").decode()


def first_text(values: Mapping[str, Any], *keys: str) -> str:
    """Return the first of these values that is a text which is not empty."""
    return next((said for key in keys if (said := text(values.get(key)))), "")


def number(value: object) -> float | None:
    """Return a finite number, or None; true and false are none.

    >>> number(1), number(True), number("1")
    (1.0, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) <= _MOST_EXACT and math.isfinite(value) else None


def tokens(*values: object) -> int | None:
    """Return the sum of counts of tokens, or None where there is none."""
    counts = [count for value in values if (count := number(value)) is not None and count >= 0]
    return int(min(sum(counts), _MOST_EXACT)) if counts else None


def time_s(value: object) -> float | None:
    """Return an instant as epoch seconds, or None if it is no time of a run.

    Args:
        value: ISO 8601, in UTC where no zone is named, or epoch seconds.

    >>> time_s("2026-11-01T09:14:03Z") == time_s("2026-11-01 09:14:03.000") == 1793524443.0
    True
    """
    seconds = number(value)
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            return None
        seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return seconds if seconds is not None and _EARLIEST_S <= seconds <= _LATEST_S else None


def parsed(value: object) -> Any:
    """Return the value of a JSON text, and any other value as it is: a cut text stays a text.

    >>> parsed('{"a": 1}'), parsed('{"a": '), parsed(2)
    ({'a': 1}, '{"a": ', 2)
    """
    if not isinstance(value, str | bytes):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def arguments(value: object) -> Fields:
    """Return the arguments of a call: an object, or a JSON text of one.

    >>> arguments('{"a": 1}'), arguments("ls -l"), arguments(None)
    ({'a': 1}, {'input': 'ls -l'}, {})
    """
    given = parsed(value)
    if isinstance(given, dict):
        return given
    return {} if given is None or given == "" else {"input": given}
