"""Look at what was recorded: the command line."""

from kp_middleware.cli._command_line import cli as main

__all__ = ["main"]
