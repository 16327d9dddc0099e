"""Why a trace scored as it did, and where it went: pure functions of its row."""

from collections.abc import Mapping
from typing import NamedTuple

from kp_middleware.storage import Row

_PARTS = ("complexity", "novelty", "tool_diversity", "outcome_confidence")
_JOINERS = "\u200c\u200d"
"""Many languages and emoji are not written without them."""


class Line(NamedTuple):
    """One line of the sum.

    Attributes:
        part: A signal, a rule, or ``score``.
        working: How the number comes about.
        amount: What it adds to the score.
    """

    part: str
    working: str
    amount: float


def arithmetic(trace: Row) -> list[Line]:
    """Each signal times its weight, each rule, and the score; empty for a trace without a score.

    The amounts before the last add up to it, but for what clamping to 0..1 takes away.
    """
    if trace["score"] is None:
        return []
    signals = [_signal(trace, part) for part in _PARTS]
    rules = [Line(rule["rule"], "rule", rule["delta"]) for rule in trace["rules"]]
    return [*signals, *rules, Line("score", _against_threshold(trace), trace["score"])]


def whereabouts(trace: Row) -> str:
    """Where the trace went and why, in one sentence."""
    outbox = trace["outbox"]
    if trace["state"] == "paused":
        return "waits for a person, or for the next turn of its thread"
    if outbox is None:
        return _kept_here(trace)
    match outbox["state"]:
        case "sent":
            return f"sent to {outbox['registry']} at {outbox['sent_at']} as {outbox['remote_id']}"
        case "pending" | "sending":
            after = f" after {outbox['last_error']}" if outbox["last_error"] else ""
            return f"waits to be sent to {outbox['registry']}{after}"
        case state:
            return f"{state}: {outbox['reason']}"


def _signal(trace: Row, part: str) -> Line:
    value, weight = trace[part], trace[f"{part}_weight"]
    working = f"{value:.3f} × {weight:.2f}"
    if part == "novelty":
        working += f"  ({_novelty_in_words(trace)})"
    return Line(part, working, value * weight)


def _novelty_in_words(trace: Row) -> str:
    if trace["embedder"] is None:
        return "not measured: no embedder"
    if trace["nearest_similarity"] is None:
        return "nothing to compare with yet"
    nearest = short_id(trace["nearest_id"]) if trace["nearest_id"] else "a pruned trace"
    return f"{trace['nearest_similarity']:.3f} like {nearest}"


def _against_threshold(trace: Row) -> str:
    distance = trace["score"] - trace["threshold"]
    where = "reaches" if distance >= 0 else "is below"
    return f"{where} {trace['threshold']:g} by {abs(distance):.3f}"


def _kept_here(trace: Row) -> str:
    match trace["state"]:
        case "recorded":
            return "kept here, not scored yet"
        case "incomplete":
            why = f" ({trace['error_type']})" if trace["error_type"] else ""
            return f"kept here, not scored: the run did not come to its end{why}"
        case _:
            return f"kept here: {trace['reason']}"


def taken_out(trace: Row) -> Mapping[str, int]:
    """What redaction took out: of what leaves, else of what is kept here; counts by kind."""
    leaving: Mapping[str, int] = (trace["outbox"] or {}).get("redactions") or {}
    return leaving or trace["redactions"]


def one_line(text: str) -> str:
    r"""A text as it may be put on a terminal: on one line, with nothing that steers it.

    >>> one_line("first\n\x1b[2Jsecond")
    'first ?[2Jsecond'
    """
    return printable(" ".join(text.split()))


def printable(line: str) -> str:
    """A line with nothing in it that steers a terminal."""
    return "".join(sign if sign.isprintable() or sign in _JOINERS else "?" for sign in line)


def in_words(counts: Mapping[str, int]) -> str:
    """How much of what, the most first.

    >>> in_words({"email": 2, "api_key": 1, "phone": 0})
    '2 email, 1 api_key'
    """
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count} {name}" for name, count in ordered if count)


def short_id(trace_id: str) -> str:
    """As much of an id as a person reads.

    >>> short_id("kp:trace:1339c01f-d20b-469c-90a1-9b4f1b03419e")
    '1339c01f'
    """
    return trace_id.removeprefix("kp:trace:")[:8]
