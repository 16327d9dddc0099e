"""What an exception means for the run that it came out of."""

import sys
from collections.abc import Sequence
from enum import Enum, auto
from types import ModuleType
from typing import TYPE_CHECKING

from kp_middleware.recording import GIVEN_UP, causes

if TYPE_CHECKING:
    from kp_langchain._run import Run


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
    REFUSED = auto()
    """A person's answer was not what the graph takes: it waits for another."""


def failure_of(error: BaseException) -> Failure:
    """What the exception means; LangGraph's own are known by class, once LangGraph is loaded."""
    if isinstance(error, GIVEN_UP):
        return Failure.GIVEN_UP
    errors = sys.modules.get("langgraph.errors")
    if errors is None:
        return Failure.ERROR
    if not isinstance(error, errors.GraphBubbleUp):
        return Failure.REFUSED if _refuses_an_answer(error, errors) else Failure.ERROR
    if isinstance(error, errors.ParentCommand):
        return Failure.HANDED_OVER
    return Failure.PAUSED


def ended_with(run: "Run | None", error: BaseException) -> None:
    """A run has ended with an exception; nothing, where nobody listens to it any more."""
    if run is None or run.answered:
        return
    root, failure = run.root, failure_of(error)
    run.stop(error, failure)
    if failure is Failure.PAUSED:
        root.be_asked(_questions_in(error), run)
    if run.is_root:
        run.paused &= failure is not Failure.ERROR
        root.rest(run)
    if run.fail(error) or (run.is_root and failure is Failure.GIVEN_UP):
        run.raised = failure is Failure.ERROR
        if run.tool is not None or not run.ends_trace:
            root.survive(error, run)
    elif run.tool is not None and failure is Failure.ERROR:
        root.observe(type(error).__name__, run)
    if run.ends_trace and failure is Failure.GIVEN_UP:
        root.cut_short(error)
    if run.is_root:
        root.recover(ended_well=failure not in {Failure.ERROR, Failure.GIVEN_UP})
    if run.ends_trace:
        root.fail(error)


def _refuses_an_answer(error: BaseException, errors: ModuleType) -> bool:
    """Whether it says so of what a graph was told, and the graph has forgotten that answer."""
    unknown = getattr(errors, "UnknownInterruptError", ())  # since 1.2
    is_invalid = getattr(errors, "is_invalid_resume", None)
    return isinstance(error, unknown) or (
        is_invalid is not None and any(map(is_invalid, causes(error)))
    )


def _questions_in(error: BaseException) -> Sequence[object]:
    """What a human is asked, where this is why the run is paused: LangGraph's ``Interrupt``s."""
    asked = error.args[0] if error.args else ()
    return asked if isinstance(asked, tuple | list) else ()
