"""Runs that are recorded without a pipeline."""

import pytest
from notebook import Notebook


@pytest.fixture
def notebook():
    return Notebook()


@pytest.fixture
def recorder(notebook):
    return notebook.start()
