import subprocess
import sys
from types import SimpleNamespace

import pytest


@pytest.fixture
def alone():
    """Runs lines after the import of our privacy, in a Python of its own; what they print."""

    def run(lines):
        script = f"import sys\nfrom kp_middleware.privacy import *\n{lines}"
        command = [sys.executable, "-c", script]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    return run


@pytest.fixture
def real_phones():
    """The package that finds national phone numbers."""
    pytest.importorskip("phonenumbers", reason="the extra phones is not installed")


@pytest.fixture
def phones(monkeypatch):
    """Sets what looks for phone numbers, a function; the name of its engine, in use only once."""

    def named(name, finder):
        def look(text, *_, **__):
            return [
                SimpleNamespace(**dict(zip(("start", "end"), at, strict=False)))
                for at in finder(text)
            ]

        package = SimpleNamespace(PhoneNumberMatcher=look, SUPPORTED_REGIONS=())
        monkeypatch.setitem(sys.modules, "phonenumbers", package)
        return f"phonenumbers:{name}"

    return named
