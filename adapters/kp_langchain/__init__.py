"""Record LangChain and LangGraph runs: ``config={"callbacks": [KPCallbackHandler(kp)]}``.

To record every run without changing the agent, call ``enable()`` or set ``KP_TRACING=true``.
To recall successful runs, use `KPRecallMiddleware`, `KPRetriever` or the tool `recall_past_runs`.
"""

from typing import TYPE_CHECKING, Any

from kp_langchain._autotrace import disable, enable, recording_runs
from kp_langchain._handler import KPCallbackHandler
from kp_langchain._recall import KPRetriever, recall_past_runs

if TYPE_CHECKING:
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


def __getattr__(name: str) -> Any:
    """Import the middleware on first access, because it needs langchain, not only the core."""
    if name == "KPRecallMiddleware":
        from kp_langchain._recall_middleware import KPRecallMiddleware

        return KPRecallMiddleware
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
