"""Late events: what a program reports about runs after they have ended."""

import time
from numbers import Real
from typing import NamedTuple, Self

from kp_middleware.runs import fingerprint


class ThreadEnd(NamedTuple):
    """The end of a thread: no further run follows.

    Attributes:
        thread: The fingerprint of its id.
        success: Whether its task was done, or None where nobody says.
        confidence: How sure of it, 0 to 1, or None.
    """

    thread: str
    success: bool | None
    confidence: float | None

    @classmethod
    def of(cls, thread_id: str | int, *, success: bool | None, confidence: float | None) -> Self:
        """Check what the program says. Raises as `KnowledgePulse.end_thread`."""
        sure = _checked_confidence(confidence)
        return cls(fingerprint(str(thread_id)), _checked_success(success), sure)


class Feedback(NamedTuple):
    """Feedback on a run, given after its end.

    Attributes:
        trace_id: Of the run's trace.
        success: Whether its task was done, or None where nothing is said of it.
        confidence: How sure of it, 0 to 1, or None where nothing is said of it.
        given_at_s: Epoch seconds.
    """

    trace_id: str
    success: bool | None
    confidence: float | None
    given_at_s: float

    @classmethod
    def of(
        cls, trace_id: str | None, *, success: bool | None, confidence: float | None
    ) -> Self | None:
        """Check what is said, now; None of no trace. Raises as `KnowledgePulse.feedback`."""
        said, sure = _checked_success(success), _checked_confidence(confidence)
        if success is None and confidence is None:
            raise ValueError("feedback says something: give success, confidence or both")
        if trace_id is None:
            return None
        if not isinstance(trace_id, str):
            raise TypeError(f"a trace's id is a text, this is a {type(trace_id).__name__}")
        return cls(trace_id, said, sure, time.time())


def _checked_success(success: bool | None) -> bool | None:  # noqa: FBT001 - its only argument
    if success not in {None, True, False}:
        raise TypeError(f"success is True or False, this is {success!r}")
    return None if success is None else bool(success)


def _checked_confidence(confidence: float | None) -> float | None:
    if confidence is None:
        return None
    if isinstance(confidence, bool) or not isinstance(confidence, Real):
        raise TypeError(f"confidence is a number from 0 to 1, this is {confidence!r}")
    if not 0 <= float(confidence) <= 1:
        raise ValueError(f"confidence is from 0 to 1, this is {confidence!r}")
    return float(confidence)
