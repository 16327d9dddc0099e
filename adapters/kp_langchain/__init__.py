"""Record LangChain and LangGraph runs: ``config={"callbacks": [KPCallbackHandler(kp)]}``.

Or all of them, without touching the agent: ``enable()``, or ``KP_TRACING=true`` in the environment.
And read good runs back: `KPRecallMiddleware`, `KPRetriever` and the tool `recall_past_runs`.
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
    """Import the middleware when it is first asked for: it needs langchain, not the core alone."""
    if name == "KPRecallMiddleware":
        from kp_langchain._recall_middleware import KPRecallMiddleware

        return KPRecallMiddleware
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
