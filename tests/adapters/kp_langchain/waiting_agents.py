"""Agents that wait for a human, on threads that another process can go on with."""

import pickle
from pathlib import Path

from langchain_core.tools import tool
from scripted_agents import agent
from scripted_models import answer_of, calls
from versions import InMemorySaver, interrupt

from kp_langchain import KPCallbackHandler


@tool
def risk(amount: int) -> str:
    """Ask a human first."""
    return f"risked {amount}: {interrupt('may I?')}"


def risking(*turns, tools=(risk,), saver=None, **options):
    """An agent that asks a human before it risks anything, or that takes other turns."""
    turns = turns or (calls(risk={"amount": 5}), answer_of("done"))
    return agent(*turns, tools=tools, checkpointer=saver or InMemorySaver(), **options)


def on_thread(kp, thread_id="T", **options):
    """A config that records on a thread, with a handler of its own."""
    return {
        "callbacks": [KPCallbackHandler(kp, **options)],
        "configurable": {"thread_id": thread_id},
    }


def save(saver: "InMemorySaver", path: Path) -> None:
    """Write what it knows to a file."""
    storage = {
        thread: {namespace: dict(kept) for namespace, kept in namespaces.items()}
        for thread, namespaces in saver.storage.items()
    }
    path.write_bytes(pickle.dumps((storage, dict(saver.writes), dict(saver.blobs))))


def load(path: Path) -> "InMemorySaver":
    """One that knows what was written."""
    saver = InMemorySaver()
    storage, writes, blobs = pickle.loads(path.read_bytes())
    for thread, namespaces in storage.items():
        saver.storage[thread].update(namespaces)
    saver.writes.update(writes)
    saver.blobs.update(blobs)
    return saver
