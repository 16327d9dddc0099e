"""What an exception means for the run that it came out of."""

import sys
from asyncio import CancelledError
from collections.abc import Iterator
from enum import Enum, auto
from typing import Final

_GIVEN_UP: Final = (CancelledError, GeneratorExit, KeyboardInterrupt, SystemExit)


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
    if isinstance(error, _GIVEN_UP):
        return Failure.GIVEN_UP
    errors = sys.modules.get("langgraph.errors")
    if errors is None or not isinstance(error, errors.GraphBubbleUp):
        return Failure.ERROR
    if isinstance(error, errors.ParentCommand):
        return Failure.HANDED_OVER
    return Failure.PAUSED


def causes(error: BaseException) -> Iterator[BaseException]:
    """The error and what led to it, at most ten."""
    cause: BaseException | None = error
    for _ in range(10):
        if cause is None:
            return
        yield cause
        cause = cause.__cause__ or cause.__context__
