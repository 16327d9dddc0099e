"""LangGraph tells only handlers of its own class when a graph pauses: ours becomes one."""

import sys
from typing import Final

from langchain_core.callbacks import BaseCallbackHandler

_told: Final[dict[type[BaseCallbackHandler], type[BaseCallbackHandler]]] = {}


def watch_graphs(handler: BaseCallbackHandler) -> None:
    """Let a handler hear of pauses, if LangGraph is loaded and can tell.

    Not before: loading LangGraph takes seconds, and a program without graphs has no use for it.
    """
    own = type(handler)
    callbacks = sys.modules.get("langgraph.callbacks")  # since 1.1.8
    if callbacks is None or issubclass(own, callbacks.GraphCallbackHandler):
        return
    if own not in _told:
        bases = (own, callbacks.GraphCallbackHandler)
        _told[own] = type(own.__name__, bases, {"__module__": own.__module__})
    handler.__class__ = _told[own]
