"""What the protocol specifies, as plain numbers: commands that read load no models."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

SIGNALS: Final = ("complexity", "novelty", "tool_diversity", "outcome_confidence")
"""In the order in which they are added up, which decides the last bit of the sum."""

DEFAULT_PROFILE: Final = "default"

SPECIFIED_WEIGHTS: Final[Mapping[str, tuple[float, float, float, float]]] = MappingProxyType(
    {
        DEFAULT_PROFILE: (0.25, 0.35, 0.15, 0.25),
        "finance": (0.20, 0.25, 0.10, 0.45),
        "code": (0.20, 0.30, 0.30, 0.20),
        "medical": (0.15, 0.20, 0.10, 0.55),
        "customer_service": (0.20, 0.30, 0.20, 0.30),
    }
)
"""The protocol's weights by domain, each in the order of `SIGNALS`; together 1."""

SPECIFIED_THRESHOLD: Final = 0.75
"""The score from which a trace may leave."""
