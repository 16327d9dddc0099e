"""Hooks for forks of the process, on platforms that fork."""

import os
import sys
from collections.abc import Callable


def at_fork(**hooks: Callable[[], object]) -> None:
    """Register functions to call around each fork, by the names of `os.register_at_fork`."""
    if sys.platform != "win32" and hasattr(os, "register_at_fork"):
        os.register_at_fork(**hooks)
