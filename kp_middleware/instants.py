"""Instants as texts in UTC, to the millisecond, which sort by time."""

from datetime import UTC, datetime
from typing import Final

__all__ = ["epoch_s", "instant", "to_milliseconds"]

_LAST_S: Final = 253_402_300_799.0  # of the year 9999, the last of a datetime


def instant(epoch_s: float) -> str:
    """Return epoch seconds as an ISO 8601 text: ``1970-01-01T00:00:00.000Z``."""
    utc = datetime.fromtimestamp(min(epoch_s, _LAST_S), UTC)
    return utc.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def to_milliseconds(text: str) -> str:
    """Return an instant in the format of the file's columns, whose text sorts by time.

    >>> to_milliseconds("2026-11-01T09:14Z"), to_milliseconds("2026-11-01T09:14:03.123456789Z")
    ('2026-11-01T09:14:00.000Z', '2026-11-01T09:14:03.123Z')
    """
    seconds, _, fraction = text.removesuffix("Z").partition(".")
    if seconds.count(":") == 1:
        seconds += ":00"
    return f"{seconds}.{fraction[:3]:0<3}Z"


def epoch_s(text: str) -> float:
    """Return the epoch seconds of an instant."""
    return datetime.fromisoformat(text).timestamp()
