"""Look at what was recorded: the command line."""

from kp_middleware.inspection._commands import cli as main

__all__ = ["main"]
