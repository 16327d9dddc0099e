"""Recall of past runs that succeeded at a similar task, quoted as data."""

from kp_middleware.recall._recall import Match, Memory, Recalled, question, recalled

__all__ = ["Match", "Memory", "Recalled", "question", "recalled"]
