"""Recall of runs that succeeded at a task like the one at hand, quoted as data."""

from kp_middleware.recall._recall import Found, Memory, Recalled, question, recalled

__all__ = ["Found", "Memory", "Recalled", "question", "recalled"]
