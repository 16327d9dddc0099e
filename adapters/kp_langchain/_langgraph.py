"""LangGraph specifics: pauses, resumptions, its errors, and nested agents."""

import re
import sys
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Final, NamedTuple

from langchain_core.callbacks import BaseCallbackHandler

from kp_middleware.recording import GIVEN_UP, Failure, bounded_name, causes

_QUESTION: Final = re.compile("[0-9a-f]{32}").fullmatch  # an interrupt's id
_told: Final[dict[type[BaseCallbackHandler], type[BaseCallbackHandler]]] = {}


def watch_graphs(handler: BaseCallbackHandler) -> None:
    """Subscribe a handler to graph pauses, if LangGraph is loaded and reports them.

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


class Resumption(NamedTuple):
    """A person's decision, None to just go on, and the ids of the interrupts, if they are named."""

    decision: object | None = None
    questions: tuple[str, ...] = ()


def resumption_of(inputs: object, metadata: Mapping[str, object]) -> Resumption | None:
    """Return the resumption that an input stands for, or None where it begins a new run.

    A graph goes on when it is given ``Command(resume=…)``, or nothing at all.
    """
    if inputs is None:  # with a checkpoint's id it goes back to that one, and makes a run of it
        goes_on = "thread_id" in metadata and "checkpoint_id" not in metadata
        return Resumption() if goes_on else None
    kinds = (kind.__name__ for kind in type(inputs).__mro__)
    if "Command" not in kinds:  # langgraph's, which may not be installed
        return None
    decision = getattr(inputs, "resume", None)
    if decision is None:
        return None
    answers = dict(decision) if isinstance(decision, Mapping) else {}
    if not answers or not all(map(_QUESTION, map(str, answers))):
        return Resumption(decision)
    only = next(iter(answers.values()))
    return Resumption(answers if len(answers) > 1 else only, tuple(answers))


def agent_inside(
    metadata: Mapping[str, object], own: object, around: str | None, within: str = ""
) -> str | None:
    """Return the name of the nested agent that a run belongs to, or None for the root's ``own``.

    An agent without a name goes by the tool ``around`` it, a subgraph by its node; ``within`` is
    the root's own namespace.

    >>> agent_inside({"langgraph_checkpoint_ns": "billing:1f|model:2e"}, own=None, around=None)
    'billing'
    """
    agent = metadata.get("lc_agent_name")
    if agent is not None and agent != own:
        return bounded_name(agent)
    if around is not None:
        return bounded_name(around)
    *inside, _ = namespace_of(metadata).removeprefix(f"{within}|").split("|")
    nodes = [node.partition(":")[0] for node in inside if not node.isdigit()]  # those count calls
    return bounded_name("/".join(nodes)) if nodes else None


def namespace_of(metadata: Mapping[str, object]) -> str:
    """Return the LangGraph checkpoint namespace of a run, or an empty string."""
    namespace = metadata.get("langgraph_checkpoint_ns")
    return namespace if isinstance(namespace, str) else ""


def failure_of(error: BaseException) -> Failure:
    """Classify an exception; LangGraph's own are recognized once LangGraph is loaded."""
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


def _refuses_an_answer(error: BaseException, errors: ModuleType) -> bool:
    """Return whether LangGraph rejected a resume value, and so forgot that answer."""
    unknown = getattr(errors, "UnknownInterruptError", ())  # since 1.2
    is_invalid = getattr(errors, "is_invalid_resume", None)
    return isinstance(error, unknown) or (
        is_invalid is not None and any(map(is_invalid, causes(error)))
    )


def questions_in(error: BaseException) -> Sequence[object]:
    """Return LangGraph's ``Interrupt``s from the exception that paused a run."""
    asked = error.args[0] if error.args else ()
    return asked if isinstance(asked, tuple | list) else ()
