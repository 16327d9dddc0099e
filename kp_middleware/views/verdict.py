"""What the gate said of a trace, and what of it hangs on the score: pure functions of its row."""

import math

from kp_middleware.core.gates import exact
from kp_middleware.storage import Row
from kp_middleware.views.wording import short_bar


def gate_in_words(trace: Row) -> str | None:
    """The gate by its name, with what it asked of this run; None where nothing was decided."""
    if trace["gate"] is None:
        return None
    bar = bar_of(trace)
    if bar is None:
        return f"{trace['gate']}, which failed to decide"
    is_said = trace["gate"].partition(",")[0] == f"threshold {exact(bar)}"
    asked = "" if is_said else f", its bar for this run {short_bar(bar)}"
    return f"{trace['gate']}{asked}"


def bar_of(trace: Row) -> float | None:
    """The score that the gate asked for, 0 to 1; None where it asked for none."""
    return None if trace["reason_code"] == "gate_failed" else trace["threshold"]


def is_cleared(trace: Row) -> bool:
    """Whether the score was good enough, whatever else kept the trace."""
    return bool(trace["score"] >= trace["threshold"]) and trace["reason_code"] != "tied_with_share"


def enough(trace: Row) -> float:
    """The least score, 0 to 1, that would have been good enough for certain.

    Of runs that are just as good as the bar of a share, the first ones go and the others do not.
    Until a domain has runs enough to tell it, the protocol's own threshold is its bar.
    """
    bar: float = trace["threshold"]
    by_share = trace["reason_code"] in {"in_share", "below_share", "tied_with_share"}
    return math.nextafter(bar, 2) if by_share else bar


def other_reason(trace: Row) -> str | None:
    """Why the verdict is not what the bar alone would have made it; None where it is."""
    match trace["reason_code"]:
        case "gate_failed" | "daily_limit":
            return str(trace["reason"])
        case "custom" if is_cleared(trace) != (trace["decision"] == "forward"):
            return str(trace["reason"])
        case _:
            return None
