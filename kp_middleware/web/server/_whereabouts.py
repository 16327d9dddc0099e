"""Where the user sits: before this machine, or at the other end of a connection."""

from collections.abc import Mapping
from typing import Final

_SCREENS: Final = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")
_ALWAYS_A_SCREEN: Final = frozenset({"darwin", "win32"})


def has_screen(environment: Mapping[str, str], platform: str) -> bool:
    """Whether a browser would open before the user's eyes: not in this terminal, nor elsewhere."""
    if any(environment.get(name) for name in _SCREENS):
        return True
    return platform in _ALWAYS_A_SCREEN and not is_far(environment)


def is_far(environment: Mapping[str, str]) -> bool:
    """Whether the user came by ssh."""
    return bool(environment.get("SSH_CONNECTION"))
