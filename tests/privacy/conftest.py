import subprocess
import sys

import pytest

OPTIONAL = ("phonenumbers", "kingfisher_sdk", "re2", "presidio_analyzer", "spacy", "pydantic")

WATCHED = """
import sys
def watch(event, _):
    if event in {"socket.connect", "socket.getaddrinfo", "socket.gethostbyname"}:
        raise OSError("a connection was opened")
sys.addaudithook(watch)
from kp_middleware.privacy import *
"""


@pytest.fixture
def without_network():
    """Runs a line with our privacy in a Python of its own that may open no connection."""
    return lambda line: (
        subprocess.run(
            [sys.executable, "-c", WATCHED + line], capture_output=True, text=True, check=True
        ).stdout
    )


@pytest.fixture
def subprocess_modules():
    """Which optional packages a Python of its own has loaded after a line with our privacy."""

    def run(line):
        code = (
            "import sys\nfrom kp_middleware.privacy import *\n"
            f"{line}\nprint(*sorted(set({OPTIONAL!r}) & set(sys.modules)))"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        return done.stdout.split()

    return run
