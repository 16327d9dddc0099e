"""The log that several hosts share, in PostgreSQL."""

from kp_middleware.sharing._link import Link, load, shown
from kp_middleware.sharing._migration import migrate, script
from kp_middleware.sharing._pacing import PaceOfAll

__all__ = ["Link", "PaceOfAll", "load", "migrate", "script", "shown"]
