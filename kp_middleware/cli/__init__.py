"""The command line: inspect recorded runs."""

from kp_middleware.cli.main import main

__all__ = ["main"]
