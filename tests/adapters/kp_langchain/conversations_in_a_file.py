"""A checkpointer that another process can go on with, and the agent of both processes."""

import pickle
from pathlib import Path

from langchain_core.tools import tool
from scripted_agents import agent
from scripted_models import calls, says
from versions import InMemorySaver, interrupt


@tool
def risk(amount: int) -> str:
    """Ask a human first."""
    return f"risked {amount}: {interrupt('may I?')}"


def risking(checkpointer):
    """An agent that asks a human before it risks anything."""
    return agent(calls(risk={"amount": 5}), says("done"), tools=[risk], checkpointer=checkpointer)


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
