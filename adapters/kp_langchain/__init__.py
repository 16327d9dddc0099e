"""Record LangChain and LangGraph runs: ``config={"callbacks": [KPCallbackHandler(kp)]}``.

Or all of them, without touching the agent: ``enable()``, or ``KP_TRACING=true`` in the environment.
"""

from kp_langchain._autotrace import disable, enable, recording_runs
from kp_langchain._handler import KPCallbackHandler

__all__ = ["KPCallbackHandler", "disable", "enable", "recording_runs"]
