"""Where in a run a step happens: in which inner agent, inside of which tool call."""

from collections.abc import Callable
from contextvars import ContextVar
from typing import Final, NamedTuple, TypeAlias


class Place(NamedTuple):
    """Where in a run a step happened.

    Attributes:
        agent: The agent inside the run's own that took it, or None.
        parent: The id of the tool call that it happened inside of, or None.
    """

    agent: str | None = None
    parent: str | None = None


PlaceFinder: TypeAlias = Callable[[], Place | None]
"""Finds the place of the code that runs here by a framework's own means, or None."""

CURRENT_PLACE: Final[ContextVar[Place | None]] = ContextVar("kp_middleware_place", default=None)
PLACE_FINDERS: Final[list[PlaceFinder]] = []


def place_here() -> Place | None:
    """Return the place of the code that runs here; None means the run's own agent."""
    place = CURRENT_PLACE.get()
    if place is not None:
        return place
    return next((found for find in PLACE_FINDERS if (found := find()) is not None), None)
