"""Standard input, output and error as every command can rely on them."""

import io
import os
import sys
from pathlib import Path
from typing import Final

_MODES: Final = {"stdin": "r", "stdout": "w", "stderr": "w"}


def prepare_streams() -> None:
    """Make what was closed (``>&-``) lead nowhere, and let output take any text.

    A pipe gets UTF-8 whatever the locale: programs read it, and JSON is never anything else. A
    terminal gets what it can show, and the number of a sign for what it cannot.
    """
    for name, mode in _MODES.items():
        if getattr(sys, name) is None:
            nowhere = Path(os.devnull).open(mode, encoding="utf-8")  # noqa: SIM115 - for good
            setattr(sys, name, nowhere)
    if isinstance(sys.stdout, io.TextIOWrapper):
        encoding = None if sys.stdout.isatty() else "utf-8"
        sys.stdout.reconfigure(encoding=encoding, errors="backslashreplace")
