"""The scripted agents of the adapter's tests; no peer is switched on by the environment."""

import os
import sys
from pathlib import Path

import pytest

_ADAPTERS = Path(__file__).parents[1] / "adapters"
sys.path += [str(_ADAPTERS), str(_ADAPTERS / "kp_langchain")]

_THEIRS = ("LANGSMITH_", "LANGCHAIN_", "LANGFUSE_", "OTEL_")


@pytest.fixture(autouse=True)
def nothing_switched_on(monkeypatch):
    [monkeypatch.delenv(name) for name in os.environ if name.startswith(_THEIRS)]


@pytest.fixture
def notebook():
    from langchain_notebook import Notebook

    return Notebook()
