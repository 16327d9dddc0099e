"""Instants as every column and document has them: UTC, to the millisecond, so that text sorts."""

from datetime import UTC, datetime


def instant(epoch_s: float) -> str:
    """Epoch seconds in words.

    >>> instant(0)
    '1970-01-01T00:00:00.000Z'
    """
    moment = datetime.fromtimestamp(epoch_s, UTC)
    return moment.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def epoch_s(text: str) -> float:
    """The epoch seconds of an instant.

    >>> epoch_s("1970-01-01T00:01:00.500Z")
    60.5
    """
    return datetime.fromisoformat(text).timestamp()
