"""What is embedded of a trace."""

from collections.abc import Iterator
from typing import Literal, NamedTuple, TypeAlias, assert_never

from kp_middleware.scoring._embedder import Embedder, Reader
from kp_middleware.scoring._window import WORD_TOKENS, Window
from kp_middleware.traces import ReasoningTrace, Step

Reading: TypeAlias = Literal["task-first", "specified"]
"""How a text is made of a trace: part of the fingerprint, so other numbers need another name.

``specified`` is the protocol's text, of which the model reads the beginning. ``task-first`` is the
same text where the window holds all of it; of a longer one, what people said, then what the agent
thought, then the rest, the beginning and the end of each.
"""


class _Ends(NamedTuple):
    """How many tokens are read of the beginning and of the end of a text."""

    first: int
    last: int


_OBJECTIVE = _Ends(32, 64)  # instructions that all runs share come before the task more often
_OF_A_PERSON = _Ends(32, 32)
_OF_THE_AGENT = _Ends(16, 16)


def embedded_text(trace: ReasoningTrace, embedder: Embedder | None = None) -> str:
    """What an embedder embeds of a trace: the specified text, unless it chooses one itself."""
    return embedder.text_of(trace) if isinstance(embedder, Reader) else specified_text(trace)


def specified_text(trace: ReasoningTrace) -> str:
    """The objective, then each step's ``content``, single-spaced; none counts as empty."""
    contents = " ".join(step.content or "" for step in trace.steps)
    return f"{trace.task.objective} {contents}"


def task_first_text(trace: ReasoningTrace, window: Window) -> str:
    """The specified text where the window holds it, else what tells most of the task."""
    text = specified_text(trace)
    return text if window.holds(text) else " ".join(_pieces(trace, window))


def _pieces(trace: ReasoningTrace, window: Window) -> Iterator[str]:
    room = WORD_TOKENS
    for text, ends in _most_telling_first(trace):
        piece = window.ends(text, *ends)
        yield piece.text
        room -= piece.tokens
        if room <= 0:
            return


def _most_telling_first(trace: ReasoningTrace) -> Iterator[tuple[str, _Ends]]:
    yield trace.task.objective, _OBJECTIVE
    for step in sorted(trace.steps, key=_rank):
        if step.content:
            yield step.content, _OF_THE_AGENT if _rank(step) else _OF_A_PERSON


def _rank(step: Step) -> int:
    """0 for what a person said, 1 for what the agent thought, 2 for what tools gave."""
    match step.type:
        case "observation" if step.tool is None:
            return 0
        case "thought":
            return 1
        case "observation" | "tool_call" | "error_recovery":
            return 2
        case _:
            assert_never(step.type)
