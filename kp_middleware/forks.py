"""Hooks for forks of the process, on platforms that fork."""

import os
import sys
from collections.abc import Callable


def _nothing() -> None:
    pass


def at_fork(
    *,
    before: Callable[[], object] = _nothing,
    after_in_parent: Callable[[], object] = _nothing,
    after_in_child: Callable[[], object] = _nothing,
) -> None:
    """Register functions to call around each fork, as `os.register_at_fork` does."""
    if sys.platform != "win32" and hasattr(os, "register_at_fork"):
        os.register_at_fork(
            before=before, after_in_parent=after_in_parent, after_in_child=after_in_child
        )
