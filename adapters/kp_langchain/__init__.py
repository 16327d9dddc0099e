"""Record LangChain and LangGraph runs: ``config={"callbacks": [KPCallbackHandler(kp)]}``."""

from kp_langchain._handler import KPCallbackHandler

__all__ = ["KPCallbackHandler"]
