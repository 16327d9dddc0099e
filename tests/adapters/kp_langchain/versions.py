"""The versions of LangChain's packages that the cases need: a case that needs others is skipped.

Tests take what is not langchain-core's from here: ``from versions import StateGraph``. Where its
package is missing or too old, a test is skipped as soon as it uses it, and says why. What only
behaves otherwise is marked: ``@needs("tool calls with ids")``.
"""

from importlib import import_module, metadata
from typing import Final
from warnings import catch_warnings

import pytest
from packaging.requirements import Requirement

_AGENTS: Final = ("langchain", "agents are langchain's")
_CLASSIC: Final = ("langchain-classic", "AgentExecutor is langchain-classic's")
_GRAPHS: Final = ("langgraph", "graphs are langgraph's")

_BEHAVIOUR: Final = {  # by name: what it needs, and why
    "agents that say so": (
        "langchain>=1.2.15",
        "older ones do not tell their agents from graphs",
    ),
    "agents that say their name": (
        "langchain>=1.2.10",
        "older ones do not tell the name of an agent",
    ),
    "answers that are refused": (
        "langgraph>=1.2.22",
        "older ones do not ask again where an answer is not of the schema",
    ),
    "nodes with a time limit": ("langgraph>=1.2", "older nodes take as long as they like"),
    "pauses that are told": (
        "langgraph>=1.1.8",
        "older ones tell nobody of a pause before or after a node",
    ),
    "thread ids of any kind": (
        "langgraph>=1.2",
        "older ones tell a thread's id only where it is a text or a number",
    ),
    "tool calls with ids": (
        "langchain-core>=1.1.3",
        "older ones do not say which call a tool run is for: another attempt reads as another call",
    ),
}

_NAMES: Final = {  # the module that each is in, what it needs, and why
    "create_agent": ("langchain.agents", *_AGENTS),
    "AgentExecutor": ("langchain_classic.agents", *_CLASSIC),
    "create_tool_calling_agent": ("langchain_classic.agents", *_CLASSIC),
    "HumanInTheLoopMiddleware": ("langchain.agents.middleware", *_AGENTS),
    "KPRecallMiddleware": ("kp_langchain", *_AGENTS),
    "ModelCallLimitMiddleware": ("langchain.agents.middleware", *_AGENTS),
    "ModelFallbackMiddleware": ("langchain.agents.middleware", *_AGENTS),
    "ModelRetryMiddleware": (
        "langchain.agents.middleware",
        "langchain>=1.1",
        "it has no ModelRetryMiddleware before",
    ),
    "PIIMiddleware": ("langchain.agents.middleware", *_AGENTS),
    "ToolRetryMiddleware": ("langchain.agents.middleware", *_AGENTS),
    "SummarizationMiddleware": (
        "langchain.agents.middleware",
        "langchain>=1.2.15",
        "older ones do not tell its model from the agent's",
    ),
    "ToolStrategy": ("langchain.agents.structured_output", *_AGENTS),
    "wrap_model_call": ("langchain.agents.middleware", *_AGENTS),
    "wrap_tool_call": ("langchain.agents.middleware", *_AGENTS),
    "run_tasks": ("kp_langchain.demo", *_AGENTS),
    "Command": ("langgraph.types", *_GRAPHS),
    "GraphRecursionError": ("langgraph.errors", *_GRAPHS),
    "InMemorySaver": ("langgraph.checkpoint.memory", *_GRAPHS),
    "MessagesState": ("langgraph.graph", *_GRAPHS),
    "RetryPolicy": ("langgraph.types", *_GRAPHS),
    "Send": ("langgraph.types", *_GRAPHS),
    "START": ("langgraph.graph", *_GRAPHS),
    "StateGraph": ("langgraph.graph", *_GRAPHS),
    "ToolNode": ("langgraph.prebuilt", *_GRAPHS),
    "interrupt": ("langgraph.types", *_GRAPHS),
}


class Missing:
    """Stands where something is not installed; a test that uses it is skipped."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def __call__(self, *_: object, **__: object) -> None:
        pytest.skip(self._reason)

    def __getattr__(self, name: str) -> None:
        if not name.startswith("__"):  # which pytest asks of whatever a module holds
            pytest.skip(self._reason)
        raise AttributeError(name)


def needs(what: str) -> pytest.MarkDecorator:
    """Mark a case about what some versions do not do, or one that uses it in another process."""
    requirement, because = _BEHAVIOUR.get(what) or _NAMES[what][1:]
    return pytest.mark.skipif(not is_met(requirement), reason=_reason(requirement, because))


def __getattr__(name: str) -> object:
    if name not in _NAMES:
        raise AttributeError(name)
    module, requirement, because = _NAMES[name]
    if not is_met(requirement):
        return Missing(_reason(requirement, because))
    with catch_warnings(action="ignore", category=DeprecationWarning):  # of its own parts
        return getattr(import_module(module), name)


def is_met(requirement: str) -> bool:
    """Return whether a version is installed: ``is_met("langchain>=1.1")``."""
    wanted = Requirement(requirement)
    try:
        return wanted.specifier.contains(metadata.version(wanted.name), prereleases=True)
    except metadata.PackageNotFoundError:
        return False


def _reason(requirement: str, because: str) -> str:
    return f"needs {requirement}: {because}"
