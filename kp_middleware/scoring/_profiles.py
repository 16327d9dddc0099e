"""How much each signal counts, by domain."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kp_middleware.scores import Weights

DEFAULT_PROFILE: Final = "default"


def _weights(*values: float) -> Weights:
    complexity, novelty, tool_diversity, outcome_confidence = values
    return Weights(
        complexity=complexity,
        novelty=novelty,
        tool_diversity=tool_diversity,
        outcome_confidence=outcome_confidence,
    )


PROFILES: Final[Mapping[str, Weights]] = MappingProxyType(
    {
        DEFAULT_PROFILE: _weights(0.25, 0.35, 0.15, 0.25),
        "finance": _weights(0.20, 0.25, 0.10, 0.45),
        "code": _weights(0.20, 0.30, 0.30, 0.20),
        "medical": _weights(0.15, 0.20, 0.10, 0.55),
        "customer_service": _weights(0.20, 0.30, 0.20, 0.30),
    }
)
"""The protocol's weights by domain, exact and case-sensitive; any other domain has the default."""
