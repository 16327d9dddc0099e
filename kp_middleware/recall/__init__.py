"""Recall of runs that succeeded at a task like the one at hand, quoted as data."""

from kp_middleware.recall._digest import digest, quote

__all__ = ["digest", "quote"]
