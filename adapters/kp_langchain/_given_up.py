"""Runs that were given up while the run around them went on: cancelled, or out of time.

LangChain tells that a chain was cancelled, but of a model or a tool nothing: it has begun, and
never says how it ended. What became of it is known when its root is over.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kp_langchain._run import Run


def given_up(silent: Iterable["Run"], cancelled: Iterable["Run"]) -> list["Run"]:
    """One run for each attempt that was given up, in the order in which they began.

    Args:
        silent: Those inside a root that is over, which never said how they ended.
        cancelled: Those that said they were. A chain is none of its own where it was cancelled with
            what it waited for.
    """
    left = [run for run in silent if _is_left(run)]
    around = {id(outer) for run in (*left, *cancelled) for outer in _around(run)}
    found = [*left, *(run for run in cancelled if id(run) not in around)]
    return sorted(filter(_is_own, found), key=lambda run: run.number)


def is_survived(run: "Run", *, ended_well: bool) -> bool:
    """Whether the run around one that was given up went on; ``ended_well``: its root did so."""
    cancelled = run if run.cancelled_at is not None else run.parent
    if cancelled is None or cancelled.raised:
        return False  # the error says it
    if cancelled.cancelled_at is None:
        return True
    return ended_well or run.root.begun > cancelled.cancelled_at


def _is_left(run: "Run") -> bool:
    """Whether it was given up, for all that we know: what began it is over."""
    return run.tells and not run.answered and run.parent is not None and run.parent.is_over


def _is_own(run: "Run") -> bool:
    """Whether it is an attempt of its own: not so within a tool that was given up with it."""
    return run.tool is not None or all(
        outer.tool is None or outer.is_over for outer in _around(run)
    )


def _around(run: "Run") -> Iterator["Run"]:
    outer = run.parent
    while outer is not None:
        yield outer
        outer = outer.parent
