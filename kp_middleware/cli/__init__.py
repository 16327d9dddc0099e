"""Look at what was recorded: the command line."""

from kp_middleware.cli.main import main

__all__ = ["main"]
