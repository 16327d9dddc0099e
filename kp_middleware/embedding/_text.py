"""The text of a trace that is embedded."""

from collections.abc import Iterable, Iterator
from enum import Enum, auto
from typing import Literal, NamedTuple, TypeAlias, assert_never

from kp_middleware.embedding._embedder import Embedder, Reader
from kp_middleware.embedding._window import WORD_TOKENS, Piece, Window
from kp_middleware.traces import ReasoningTrace, Step

Reading: TypeAlias = Literal["task-first", "specified"]
"""The way a text is made from a trace; part of the fingerprint, so a change needs a new name.

``specified`` is the protocol's text, of which the model reads the beginning. ``task-first`` is the
same if the window holds all of it. From a longer one it takes the beginning and the end of each
part, in the order of the run. What people said comes first in the budget of the window, then what
the agent thought; tool results get no more room than both together.
"""


class _Ends(NamedTuple):
    """The numbers of tokens that are read from the beginning and from the end of a text."""

    first: int
    last: int


class _Part(NamedTuple):
    """A text of a run, its position there, and the tokens that are read of it."""

    place: int
    text: str
    ends: _Ends


class _Source(Enum):
    """The author of a step's content."""

    PERSON = auto()
    AGENT = auto()
    TOOL = auto()


_OBJECTIVE = _Ends(32, 64)  # the task often follows instructions that all runs share
_OF_A_PERSON = _Ends(32, 32)
_OF_OTHERS = _Ends(16, 16)


def embedded_text(trace: ReasoningTrace, embedder: Embedder | None = None) -> str:
    """Return the text to embed for a trace: the embedder's own choice, or the specified text."""
    return embedder.text_of(trace) if isinstance(embedder, Reader) else specified_text(trace)


def specified_text(trace: ReasoningTrace) -> str:
    """Return the objective and each step's ``content``, or an empty text, joined by spaces."""
    contents = " ".join(step.content or "" for step in trace.steps)
    return f"{trace.task.objective} {contents}"


def task_first_text(trace: ReasoningTrace, window: Window) -> str:
    """Return the specified text if the window holds it, else the parts that tell the task."""
    text = specified_text(trace)
    if window.holds(text):
        return text
    said = [_Part(0, trace.task.objective, _OBJECTIVE), *_parts(trace, _Source.PERSON)]
    taken = _take((*said, *_parts(trace, _Source.AGENT)), window, room=WORD_TOKENS)
    taken_tokens = sum(piece.tokens for _, piece in taken)
    left = min(WORD_TOKENS - taken_tokens, taken_tokens)
    taken += _take(_parts(trace, _Source.TOOL), window, room=left)
    return " ".join(piece.text for _, piece in sorted(taken))


def _parts(trace: ReasoningTrace, source: _Source) -> Iterator[_Part]:
    """Yield the parts of a run from one source, in order; position 0 is the objective's."""
    ends = _OF_A_PERSON if source is _Source.PERSON else _OF_OTHERS
    for place, step in enumerate(trace.steps, start=1):
        if step.content and _source(step) is source:
            yield _Part(place, step.content, ends)


def _take(parts: Iterable[_Part], window: Window, *, room: int) -> list[tuple[int, Piece]]:
    """Return the ends of each part in turn, with its position, until there is no room left."""
    taken: list[tuple[int, Piece]] = []
    for part in parts:
        if room <= 0:
            break
        piece = window.ends(part.text, *part.ends)
        if piece.tokens:
            taken.append((part.place, piece))
            room -= piece.tokens
    return taken


def _source(step: Step) -> _Source:
    match step.type:
        case "observation" if step.tool is None:
            return _Source.PERSON
        case "thought":
            return _Source.AGENT
        case "observation" | "tool_call" | "error_recovery":
            return _Source.TOOL
        case _:
            assert_never(step.type)
