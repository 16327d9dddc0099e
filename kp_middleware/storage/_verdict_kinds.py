"""What kind of verdict the gate gave: what the column ``verdict`` says."""

from typing import Final

WITHHELD: Final = (
    "below_threshold",
    "below_share",
    "tied_with_share",
    "warming_up",
    "daily_limit",
    "gate_failed",
    "custom",
)
"""Of those that were not let through; the migration that added the column has how it is told."""
