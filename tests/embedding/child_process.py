"""A Python of its own: for what is decided once, or read from the environment, by a process."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

_NOBODY_LISTENS = "http://127.0.0.1:9"
_OURS = ("KP_", "HF_", "FASTEMBED_", "TRANSFORMERS_", "XDG_", "ORT_")
_HERE = Path(__file__).parent


class Child:
    """Runs scripts with caches of their own and, unless a variable says otherwise, no hub.

    Args:
        home: Where the caches are.
        without: A package that is as if it were not installed.
        environment: Variables that are set otherwise.
    """

    def __init__(self, home: Path, *, without: str = "", **environment: str) -> None:
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(_OURS) and not name.lower().endswith("_proxy")
        }
        self._without = without
        self._environment = {
            **kept,
            "PYTHONPATH": os.pathsep.join([str(_HERE), os.environ["PYTHONPATH"]]),
            "XDG_CACHE_HOME": str(home / "cache"),
            "FASTEMBED_CACHE_PATH": str(home / "fastembed"),
            "HF_HOME": str(home / "hub"),
            "HF_ENDPOINT": _NOBODY_LISTENS,
            **environment,
        }

    def begin(self, script: str) -> "subprocess.Popen[str]":
        """The running child; it has all names of ``child_names``."""
        hidden = f"import sys; sys.modules[{self._without!r}] = None"
        return subprocess.Popen(
            [sys.executable, "-c", f"{hidden}\nfrom child_names import *\n{script}"],
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, script: str) -> Any:
        """Return the output of the script, which must not write to stderr."""
        return printed_json(self.begin(script))


def printed_json(child: "subprocess.Popen[str]") -> Any:
    """Return the output of a child that has ended."""
    printed, complaints = child.communicate()
    if child.returncode or complaints:
        raise AssertionError(complaints)
    return json.loads(printed)
