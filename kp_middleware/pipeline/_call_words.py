"""Tool calls in words, for readers of the document that look at ``content`` alone."""

import json
from collections.abc import Callable, Sequence
from typing import Final

from kp_middleware.traces import ReasoningTrace, Step

_MOST_CHARACTERS: Final = 200
_MOST_OF_AN_ARGUMENT: Final = 80


def with_calls_in_words(
    trace: ReasoningTrace, clean: Callable[[list[str]], Sequence[str]]
) -> ReasoningTrace:
    """Return the trace with a ``content`` for each tool call without one: the call as text.

    Args:
        trace: Already redacted: a cut must not hide half of a secret from redaction.
        clean: Redacts the new texts, in which values stand together that did not before.
    """
    calls = {at: call_words(step) for at, step in enumerate(trace.steps) if _is_silent(step)}
    if not calls:
        return trace
    cleaned = dict(zip(calls, clean([*calls.values()]), strict=True))
    steps = tuple(
        step.model_copy(update={"content": cleaned[at]}) if at in cleaned else step
        for at, step in enumerate(trace.steps)
    )
    return trace.model_copy(update={"steps": steps})


def without_call_words(leaving: ReasoningTrace, kept: ReasoningTrace) -> ReasoningTrace:
    """Remove the ``content`` of tool calls that have none in the local copy."""
    steps = tuple(
        step.model_copy(update={"content": None}) if _is_silent(here) else step
        for step, here in zip(leaving.steps, kept.steps, strict=True)
    )
    return leaving.model_copy(update={"steps": steps})


def call_words(step: Step) -> str:
    """Return a tool call as source code, in at most 200 characters.

    >>> from kp_middleware.traces import Tool
    >>> given = {"amount": 250, "to": "EUR"}
    >>> call_words(Step(step_id=0, type="tool_call", tool=Tool(name="convert"), input=given))
    'convert(amount=250, to="EUR")'
    """
    name = "" if step.tool is None else step.tool.name
    arguments = ", ".join(f"{key}={_written(value)}" for key, value in (step.input or {}).items())
    return _cut(f"{name}({arguments})", _MOST_CHARACTERS)


def _is_silent(step: Step) -> bool:
    return step.type == "tool_call" and step.tool is not None and not step.content


def _written(value: object) -> str:
    if isinstance(value, str):
        return json.dumps(_cut(value, _MOST_OF_AN_ARGUMENT), ensure_ascii=False)
    return _cut(json.dumps(value, ensure_ascii=False), _MOST_OF_AN_ARGUMENT)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
