"""Record LangChain and LangGraph runs: ``config={"callbacks": [KPCallbackHandler(kp)]}``.

To record every run without changing the agent, call ``enable()`` or set ``KP_TRACING=true``.
To recall successful runs, use `KPRecallMiddleware`, `KPRetriever` or the tool `recall_past_runs`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kp_langchain._autotrace import disable, enable, recording_runs
from kp_langchain._handler import KPCallbackHandler

if TYPE_CHECKING:
    from kp_langchain._recall import KPRetriever, recall_past_runs
    from kp_langchain._recall_middleware import KPRecallMiddleware

__all__ = [
    "KPCallbackHandler",
    "KPRecallMiddleware",
    "KPRetriever",
    "disable",
    "enable",
    "recall_past_runs",
    "recording_runs",
]


_HOMES = {
    "KPRecallMiddleware": "_recall_middleware",  # needs langchain, not only its core
    "KPRetriever": "_recall",  # langchain_core.retrievers takes as long to import as all the rest
    "recall_past_runs": "_recall",
}


def __getattr__(name: str) -> Any:
    """Import rarely used names on first use."""
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
