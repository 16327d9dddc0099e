"""Recall of runs that succeeded at a task like the one at hand, quoted as data."""

from kp_middleware.recall._digest import digest, quote
from kp_middleware.recall._recall import Memory, Recalled

__all__ = ["Memory", "Recalled", "digest", "quote"]
