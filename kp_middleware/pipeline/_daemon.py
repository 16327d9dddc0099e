"""Threads that never keep a program from ending."""

import threading
from collections.abc import Callable


def start_daemon(name: str, work: Callable[[], None]) -> threading.Thread:
    """Begin to work in the background."""
    thread = threading.Thread(target=work, name=name, daemon=True)
    thread.start()
    return thread
