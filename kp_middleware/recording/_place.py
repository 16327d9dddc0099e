"""The place of a step in a run: its inner agent and the tool call around it."""

from collections.abc import Callable
from contextvars import ContextVar
from typing import Final, NamedTuple, TypeAlias


class Place(NamedTuple):
    """The place of a step in a run.

    Attributes:
        agent: The inner agent that took the step, or None for the run's own agent.
        parent: The id of the tool call around the step, or None.
    """

    agent: str | None = None
    parent: str | None = None


PlaceFinder: TypeAlias = Callable[[], Place | None]
"""A function that returns the place of the running code by a framework's means, or None."""

CURRENT_PLACE: Final[ContextVar[Place | None]] = ContextVar("kp_middleware_place", default=None)
PLACE_FINDERS: Final[list[PlaceFinder]] = []


def place_here() -> Place | None:
    """Return the place of the running code; None means the run's own agent."""
    place = CURRENT_PLACE.get()
    if place is not None:
        return place
    return next((found for find in PLACE_FINDERS if (found := find()) is not None), None)
