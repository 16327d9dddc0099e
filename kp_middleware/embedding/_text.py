"""What is embedded of a trace."""

from collections.abc import Iterable, Iterator
from enum import Enum, auto
from typing import Literal, NamedTuple, TypeAlias, assert_never

from kp_middleware.embedding._embedder import Embedder, Reader
from kp_middleware.embedding._window import WORD_TOKENS, Piece, Window
from kp_middleware.traces import ReasoningTrace, Step

Reading: TypeAlias = Literal["task-first", "specified"]
"""How a text is made of a trace: part of the fingerprint, so other numbers need another name.

``specified`` is the protocol's text, of which the model reads the beginning. ``task-first`` is the
same where the window holds all of it. Of a longer one it takes the beginning and the end of each
part, in the order of the run: what people said has the first claim on the window, then what the
agent thought; what tools gave has no more room than these together.
"""


class _Ends(NamedTuple):
    """How many tokens are read of the beginning and of the end of a text."""

    first: int
    last: int


class _Part(NamedTuple):
    """A text of a run, its place there, and what is read of it."""

    place: int
    text: str
    ends: _Ends


class _Source(Enum):
    """Whose words the content of a step is."""

    PERSON = auto()
    AGENT = auto()
    TOOL = auto()


_OBJECTIVE = _Ends(32, 64)  # instructions that all runs share come before the task more often
_OF_A_PERSON = _Ends(32, 32)
_OF_OTHERS = _Ends(16, 16)


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
    if window.holds(text):
        return text
    said = [_Part(0, trace.task.objective, _OBJECTIVE), *_parts(trace, _Source.PERSON)]
    taken = _take((*said, *_parts(trace, _Source.AGENT)), window, room=WORD_TOKENS)
    taken_tokens = sum(piece.tokens for _, piece in taken)
    left = min(WORD_TOKENS - taken_tokens, taken_tokens)
    taken += _take(_parts(trace, _Source.TOOL), window, room=left)
    return " ".join(piece.text for _, piece in sorted(taken))


def _parts(trace: ReasoningTrace, source: _Source) -> Iterator[_Part]:
    """What one source gave to a run, in its order; 0 is the place of the objective."""
    ends = _OF_A_PERSON if source is _Source.PERSON else _OF_OTHERS
    for place, step in enumerate(trace.steps, start=1):
        if step.content and _source(step) is source:
            yield _Part(place, step.content, ends)


def _take(parts: Iterable[_Part], window: Window, *, room: int) -> list[tuple[int, Piece]]:
    """The ends of one part after another, each with its place, until there is no room left."""
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
