"""Record agent runs, score them locally, keep them all, share what is worth sharing."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kp_middleware.core.formula import Score
    from kp_middleware.core.gates import Decision, Gate, GateHistory
    from kp_middleware.embedding import (
        Embedder,
        MiniLMEmbedder,
        Scorer,
        VectorCache,
        aevaluate_value,
        evaluate_value,
    )
    from kp_middleware.pipeline import KnowledgePulse
    from kp_middleware.recall import Recalled
    from kp_middleware.recording import current_trace
    from kp_middleware.settings import Settings
    from kp_middleware.storage import ReviewItem, Run, RunSummary, StepRecord
    from kp_middleware.traces import Metadata, Outcome, ReasoningTrace, Step, Task, Tool

__all__ = ["Decision", "Embedder", "Gate", "GateHistory", "KnowledgePulse", "Metadata",
           "MiniLMEmbedder", "Outcome", "ReasoningTrace", "Recalled", "ReviewItem", "Run",
           "RunSummary", "Score", "Scorer", "Settings", "Step", "StepRecord", "Task", "Tool",
           "VectorCache", "aevaluate_value", "current_trace", "evaluate_value"]  # fmt: skip

_HOMES = {
    "pipeline": ("KnowledgePulse",),
    "recall": ("Recalled",),
    "recording": ("current_trace",),
    "core.formula": ("Score",),
    "core.gates": ("Decision", "Gate", "GateHistory"),
    "embedding": (
        "Embedder",
        "MiniLMEmbedder",
        "Scorer",
        "VectorCache",
        "aevaluate_value",
        "evaluate_value",
    ),
    "settings": ("Settings",),
    "storage": ("ReviewItem", "Run", "RunSummary", "StepRecord"),
    "traces": ("Metadata", "Outcome", "ReasoningTrace", "Step", "Task", "Tool"),
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use: commands must start fast."""
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__]
