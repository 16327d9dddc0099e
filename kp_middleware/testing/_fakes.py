"""Fakes of slow or time-dependent parts: a clock, an embedder."""

import re
from typing import TYPE_CHECKING, Final
from zlib import crc32

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_WORD = re.compile(r"\w+")
_DIMENSIONS: Final = 384


class FakeClock:
    """A clock set by hand: call it as ``time.time``; its ``ms`` returns milliseconds.

    >>> clock = FakeClock(1000.0)
    >>> clock.advance(1.5)
    >>> clock(), clock.ms()
    (1001.5, 1001500)
    """

    def __init__(self, now: float = 1_790_000_000.0) -> None:
        self._now = now

    def __call__(self) -> float:
        """Return seconds since the epoch."""
        return self._now

    def ms(self) -> int:
        """Return milliseconds since the epoch, rounded."""
        return round(self._now * 1000)

    def advance(self, seconds: float) -> None:
        """Advance the clock; a negative number sets it back."""
        self._now += seconds


class StandInEmbedder:
    """A deterministic embedder without a model: texts that share words are similar.

    Attributes:
        name: Its fingerprint.
        asked: The texts it was given, in order.

    >>> embedder = StandInEmbedder()
    >>> near = embedder.embed("sort a list") @ embedder.embed("sort a long list")
    >>> far = embedder.embed("sort a list") @ embedder.embed("book flights to Rome")
    >>> bool(near > 0.8 > 0.2 > far), len(embedder.asked)
    (True, 4)
    """

    name: Final = "stand-in"

    def __init__(self) -> None:
        self.asked: list[str] = []

    def embed(self, text: str, /) -> "NDArray[np.float32]":
        """Return the unit vector of a text: float32, 384 dimensions."""
        import numpy as np

        self.asked.append(text)
        words = _WORD.findall(text.casefold()) or [text]
        counts = np.bincount(
            [crc32(word.encode(errors="replace")) % _DIMENSIONS for word in words],
            minlength=_DIMENSIONS,
        )
        return (counts / np.linalg.norm(counts)).astype(np.float32)
