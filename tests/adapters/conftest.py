"""Runs that adapters record without a pipeline."""

import pytest
from told_runs import Book

from kp_middleware.recording import shield


@pytest.fixture
def book():
    return Book()


@pytest.fixture
def without_content():
    """The number of runs since then that were only counted: their spans had no content."""

    def now():
        counts = shield.failures.items()
        return sum(count for kind, count in counts if "without content" in kind)

    before = now()
    return lambda: now() - before
