"""What an exception means for the run that it came out of."""

import sys
from collections.abc import Sequence
from enum import Enum, auto

from kp_middleware.recording import GIVEN_UP


class Failure(Enum):
    """Why a run ended without a result."""

    ERROR = auto()
    """Something went wrong."""
    GIVEN_UP = auto()
    """It was cancelled, timed out, or nobody wanted the rest."""
    PAUSED = auto()
    """It waits for a human, or was drained: it may go on later."""
    HANDED_OVER = auto()
    """A parent graph goes on with it."""


def failure_of(error: BaseException) -> Failure:
    """What the exception means; LangGraph's own are known by class, once LangGraph is loaded."""
    if isinstance(error, GIVEN_UP):
        return Failure.GIVEN_UP
    errors = sys.modules.get("langgraph.errors")
    if errors is None or not isinstance(error, errors.GraphBubbleUp):
        return Failure.ERROR
    if isinstance(error, errors.ParentCommand):
        return Failure.HANDED_OVER
    return Failure.PAUSED


def questions_in(error: BaseException) -> Sequence[object]:
    """What a human is asked, where this is why the run is paused: LangGraph's ``Interrupt``s."""
    asked = error.args[0] if error.args else ()
    return asked if isinstance(asked, tuple | list) else ()
