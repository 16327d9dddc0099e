"""A monotonic clock that all processes of the machine share."""

import sys
import time
from pathlib import Path
from typing import Final, NamedTuple

_BOOT_FILE: Final = Path("/proc/sys/kernel/random/boot_id")


class Uptime(NamedTuple):
    """The time since the machine was booted.

    Attributes:
        boot: Names the start it counts from; empty where that has no name: then two cannot be
            compared.
        seconds: Since then, sleep included.
    """

    boot: str
    seconds: float


def read_uptime() -> Uptime:
    """Return the current uptime; known on Linux only."""
    if sys.platform == "linux":
        try:
            boot = _BOOT_FILE.read_text(encoding="ascii").strip()
        except OSError:
            return Uptime("", 0.0)
        return Uptime(boot, time.clock_gettime(time.CLOCK_BOOTTIME))
    return Uptime("", 0.0)
