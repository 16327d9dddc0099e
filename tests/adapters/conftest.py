"""Runs that adapters record without a pipeline."""

from collections import Counter

import pytest
from framework_dumps import RunCollector

from kp_middleware.recording import shield


@pytest.fixture
def collector():
    return RunCollector()


@pytest.fixture
def without_content(monkeypatch):
    """The number of runs that were only counted in this test: their spans had no content."""
    monkeypatch.setattr(shield, "failures", counts := Counter())
    return lambda: sum(count for kind, count in counts.items() if "without content" in kind)


@pytest.fixture
def buffer(processor):
    """The spans of the processor that are not recorded yet."""
    return processor._buffer
