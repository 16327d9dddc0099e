"""What is to be done when the process forks, where processes fork at all."""

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
    """Have them called around each fork from now on, as `os.register_at_fork` does."""
    if sys.platform != "win32" and hasattr(os, "register_at_fork"):
        os.register_at_fork(
            before=before, after_in_parent=after_in_parent, after_in_child=after_in_child
        )
