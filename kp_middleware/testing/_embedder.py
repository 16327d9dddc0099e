"""An embedder without a model."""

import re
from typing import TYPE_CHECKING, Final
from zlib import crc32

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_WORD = re.compile(r"\w+")
_DIMENSIONS: Final = 384


class StandInEmbedder:
    """Counts hashed words: texts that share words are near. The same everywhere, at once, no model.

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
        """The vector of one text: float32, 384 numbers, of length 1, also where no word is."""
        import numpy as np

        self.asked.append(text)
        words = _WORD.findall(text.casefold()) or [text]
        counts = np.bincount(
            [crc32(word.encode(errors="replace")) % _DIMENSIONS for word in words],
            minlength=_DIMENSIONS,
        )
        return (counts / np.linalg.norm(counts)).astype(np.float32)
