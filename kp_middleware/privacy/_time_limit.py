"""How long other programs' finders may look at one document."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

DOCUMENT_S = 60.0
"""All engines together: about twice what a spaCy model takes for a trace of 1 MiB."""

_seconds_left: ContextVar[Callable[[], float]] = ContextVar("_seconds_left")


@contextmanager
def document(
    limit_s: float = DOCUMENT_S, *, clock: Callable[[], float] = time.monotonic
) -> Iterator[None]:
    """What is looked at inside is one document, or a part of the one that has begun."""
    if _seconds_left.get(None) is not None:
        yield
        return
    ends_at = clock() + limit_s
    token = _seconds_left.set(lambda: ends_at - clock())
    try:
        yield
    finally:
        _seconds_left.reset(token)


def check_time() -> None:
    """Stop if the time of the document is up; outside of a document there is no limit.

    Raises:
        TimeoutError: It is.
    """
    seconds_left = _seconds_left.get(None)
    if seconds_left is not None and seconds_left() < 0:
        raise TimeoutError
