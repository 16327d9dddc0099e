"""A stored row as the formula takes it."""

from kp_middleware.core.alternatives import Facts
from kp_middleware.core.formula import SIGNALS, Parts, Signals, Weights
from kp_middleware.storage import Row
from kp_middleware.views._reasons import kinds_of


def parts_of(trace: Row) -> Parts:
    """The parts of a score, as they are stored."""
    return Parts(
        Signals(*(trace[name] for name in SIGNALS)),
        Weights(*(trace[f"{name}_weight"] for name in SIGNALS)),
        tuple(rule["rule"] for rule in trace["rules"]),
    )


def facts_of(trace: Row) -> Facts:
    """Everything of a run with a score that this score depends on."""
    return Facts(
        kinds=frozenset(kinds_of(trace)),
        steps=trace["step_count"],
        tools=trace["tool_count"],
        recoveries=trace["recovery_count"],
        novelty=trace["novelty"],
        confidence=trace["confidence"],
        success=bool(trace["success"]),
    )
