"""What kind of verdict the gate gave: what the column ``verdict`` says."""

from typing import Final

WITHHELD: Final = ("below", "warming up", "only as good", "daily limit", "gate failed", "other")
"""Of those that were not let through; the migration that added the column has how it is told."""
