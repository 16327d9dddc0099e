"""Which agent of several takes a step: read from the metadata of its run, a pure function."""

from collections.abc import Mapping, Sequence
from typing import Final

from kp_middleware.recording import bounded_text

_NAME_BYTES: Final = 256


def agent_inside(
    metadata: Mapping[str, object], *, own: object, around: str | None, within: str = ""
) -> str | None:
    """The agent inside the root's own that a run belongs to, or None where it is the root's.

    An agent without a name goes by the tool that it runs in, a subgraph by its node.

    Args:
        metadata: Of the run.
        own: The name of the root's agent, or None.
        around: The tool that the run is inside of, or None.
        within: Where the root itself runs, in the words of LangGraph.

    >>> agent_inside({"langgraph_checkpoint_ns": "billing:1f|model:2e"}, own=None, around=None)
    'billing'
    """
    agent = metadata.get("lc_agent_name")
    if agent is not None and agent != own:
        return bounded_text(str(agent), _NAME_BYTES)
    if around is not None:
        return bounded_text(around, _NAME_BYTES)
    namespace = metadata.get("langgraph_checkpoint_ns")
    if not isinstance(namespace, str) or "|" not in namespace:
        return None
    inside = namespace.removeprefix(f"{within}|").split("|")[:-1]
    nodes = [node.partition(":")[0] for node in inside if not node.isdigit()]  # those count calls
    return bounded_text("/".join(nodes), _NAME_BYTES) if nodes else None


def namespace_of(metadata: Mapping[str, object]) -> str:
    """Where in a graph something runs, in the words of LangGraph; nothing where it is in none."""
    namespace = metadata.get("langgraph_checkpoint_ns")
    return namespace if isinstance(namespace, str) else ""


def is_node(tags: Sequence[str] | None) -> bool:
    """Whether a run is a graph's node."""
    return any(tag.startswith("graph:step:") for tag in tags or ())
