"""The settings of whoever types a command."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kp_middleware.settings import Settings


def read_settings(db: Path) -> "Settings":
    """From the environment and the files, for this file of traces; what is wrong, in words."""
    from kp_middleware.inspection.installation.origins import checked_settings

    return checked_settings({"db": db})
