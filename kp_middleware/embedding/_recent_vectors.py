"""The last few vectors, so that an exact repeat is not embedded again."""

from collections import OrderedDict
from collections.abc import Callable
from hashlib import sha256
from threading import Lock
from typing import Final

from kp_middleware.embedding._embedder import Vector

_MOST: Final = 64  # vectors: 100 KB


class RecentVectors:
    """Embeds a text unless it is among the last 64 different ones. Safe in several threads.

    Args:
        embed: Makes a vector; called without a lock.
    """

    def __init__(self, embed: Callable[[str], Vector]) -> None:
        self._embed = embed
        self._lock = Lock()
        self._vectors: OrderedDict[bytes, Vector] = OrderedDict()

    def of(self, text: str) -> Vector:
        """The vector of a text, the caller's own to change."""
        key = sha256(text.encode()).digest()
        with self._lock:
            vector = self._vectors.get(key)
        if vector is None:
            vector = self._embed(text)
        with self._lock:
            self._vectors[key] = vector
            self._vectors.move_to_end(key)
            if len(self._vectors) > _MOST:
                self._vectors.popitem(last=False)
        return vector.copy()
