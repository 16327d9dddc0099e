"""Small traces to score."""

from collections.abc import Iterable

from kp_middleware import ReasoningTrace, Step, Tool
from kp_middleware.traces import StepType


def step(kind: StepType = "thought", content: str = "", tool: str | None = None) -> Step:
    """One step; its number does not matter to the score."""
    used = {} if tool is None else {"tool": Tool(name=tool)}
    return Step(step_id=0, type=kind, content=content, **used)


def trace(
    *steps: Step, objective: str = "add 1 and 2", domain: str = "general", success: bool = True
) -> ReasoningTrace:
    """A trace of these steps, or of two plain thoughts."""
    two_thoughts: Iterable[Step] = (step(content="one"), step(content="two"))
    return ReasoningTrace.of(
        objective, steps or two_thoughts, domain=domain, success=success, confidence=0.8
    )
