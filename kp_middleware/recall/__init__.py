"""Recall of runs that succeeded at a task like the one at hand, quoted as data."""

from kp_middleware.recall._recall import Match, Memory, Recalled, question, recalled

__all__ = ["Match", "Memory", "Recalled", "question", "recalled"]
