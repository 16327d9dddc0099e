"""How much each signal counts, by domain."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kp_middleware.scores import Weights
from kp_middleware.specified import SIGNALS, SPECIFIED_WEIGHTS

PROFILES: Final[Mapping[str, Weights]] = MappingProxyType(
    {
        domain: Weights(**dict(zip(SIGNALS, weights, strict=True)))
        for domain, weights in SPECIFIED_WEIGHTS.items()
    }
)
"""The protocol's weights by domain, exact and case-sensitive; any other domain has the default."""
