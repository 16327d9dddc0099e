import subprocess
import sys
from types import SimpleNamespace

import pytest

OPTIONAL = ("phonenumbers", "kingfisher_sdk", "re2", "presidio_analyzer", "spacy", "pydantic")

WATCHED = """
def watch(event, _):
    if event in {"socket.connect", "socket.getaddrinfo", "socket.gethostbyname"}:
        raise OSError("a connection was opened")
sys.addaudithook(watch)
"""
IMPORTED = "from kp_middleware.privacy import *"


@pytest.fixture
def alone():
    """Runs lines before and after the import of our privacy, in a Python of its own."""
    return lambda before, after: (
        subprocess.run(
            [sys.executable, "-c", f"import sys\n{before}\n{IMPORTED}\n{after}"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    )


@pytest.fixture
def without_network(alone):
    """Runs a line with our privacy in a Python of its own that may open no connection."""
    return lambda line: alone(WATCHED, line)


@pytest.fixture
def subprocess_modules(alone):
    """Which optional packages a Python of its own has loaded after a line with our privacy."""
    told = f"print(*sorted(set({OPTIONAL!r}) & set(sys.modules)))"
    return lambda line: alone("", f"{line}\n{told}").split()


@pytest.fixture
def phones(monkeypatch):
    """Sets what looks for phone numbers, a function; the name of its engine, in use only once."""

    def named(name, finder):
        def look(text, *_, **__):
            return [
                SimpleNamespace(**dict(zip(("start", "end"), at, strict=False)))
                for at in finder(text)
            ]

        package = SimpleNamespace(PhoneNumberMatcher=look)
        monkeypatch.setitem(sys.modules, "phonenumbers", package)
        return f"phonenumbers:{name}"

    return named
