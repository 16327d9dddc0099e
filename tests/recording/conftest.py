"""Runs that are recorded without a pipeline."""

import pytest
from notebook import Notebook


@pytest.fixture
def notebook():
    return Notebook()


@pytest.fixture
def recorder(notebook):
    return notebook.start()


@pytest.fixture
def capture(notebook):
    return notebook.capture


@pytest.fixture
def tool(notebook):
    return notebook.tool
