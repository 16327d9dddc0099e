"""The attempts of a run that were given up: spans cancelled, or left without an end."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from kp_middleware.recording._steps import BEGINNING, LateNote

if TYPE_CHECKING:
    from kp_middleware.recording._spans import Span


def given_up(silent: Iterable["Span"], cancelled: Iterable["Span"]) -> list["Span"]:
    """Return one span for each attempt that was given up, in the order in which they began.

    Args:
        silent: The spans of a finished root whose end was never reported.
        cancelled: The spans that reported a cancellation. A chain cancelled together with a span
            inside it is no attempt of its own.
    """
    left = [span for span in silent if _is_left(span)]
    around = {id(outer) for span in (*left, *cancelled) for outer in _around(span)}
    found = [*left, *(span for span in cancelled if id(span) not in around)]
    return sorted(filter(_is_own, found), key=lambda span: span.number)


def is_survived(span: "Span", *, ended_well: bool) -> bool:
    """Return whether a run went on after a span was given up, or its root ``ended_well``."""
    cancelled = span if span.cancelled_at is not None else span.parent
    if cancelled is None or cancelled.raised:
        return False  # the error itself is noted
    if cancelled.cancelled_at is None:
        return True
    return ended_well or span.root.begun > cancelled.cancelled_at


def _is_left(span: "Span") -> bool:
    """Return whether a span with a step was presumably given up, because its parent has ended."""
    return span.tells and not span.answered and span.parent is not None and span.parent.is_over


def _is_own(span: "Span") -> bool:
    """Return whether a span is an attempt of its own, not part of a tool given up with it."""
    return span.tool is not None or all(
        outer.tool is None or outer.is_over for outer in _around(span)
    )


def _around(span: "Span") -> Iterator["Span"]:
    outer = span.parent
    while outer is not None:
        yield outer
        outer = outer.parent


def late_notes(left: Iterable["Span"], *, ended_well: bool) -> Iterator[LateNote]:
    """Yield the notes of spans that were given up: their partial texts, and their recoveries."""
    for span in left:
        after, at = span.after or BEGINNING, span.started_s or span.root.recorder.clock()
        where = span.place, span.step_call_id, at
        said = "".join(span.parts or ())
        if said and not span.internal:
            yield LateNote("thought", said, after, None, *where)
        if is_survived(span, ended_well=ended_well):
            yield LateNote("error_recovery", span.cancelled_by, after, span.tool, *where)
