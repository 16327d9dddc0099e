"""A handler, the notebook that it writes to, and an agent."""

import pytest
from langchain_notebook import Notebook
from scripted_agents import agent, chain
from scripted_models import answer_of, calls
from versions import is_met

from kp_langchain import KPCallbackHandler


@pytest.fixture
def notebook():
    return Notebook()


@pytest.fixture
def other():
    """The notebook of another pipeline."""
    return Notebook()


@pytest.fixture
def handler(notebook):
    return KPCallbackHandler(notebook)


@pytest.fixture
def live_spans(handler):
    """The spans of the handler that have begun and not ended."""
    return handler._runs


@pytest.fixture
def config(handler):
    return {"callbacks": [handler]}


@pytest.fixture
def adding():
    """An agent that adds once, then answers; where there are no agents, a chain that does so."""
    make = agent if is_met("langchain") else chain
    return make(calls("I need to add.", add={"a": 1, "b": 2}), answer_of("The answer is 3."))
