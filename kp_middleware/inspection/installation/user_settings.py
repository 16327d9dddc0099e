"""The settings of whoever types a command."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from kp_middleware import locations

if TYPE_CHECKING:
    from kp_middleware.settings import Settings


def read_settings(db: Path) -> "Settings":
    """From the environment and the files, for this file of traces; what is wrong, in words."""
    from kp_middleware.inspection.installation.origins import checked_settings

    return checked_settings({"db": db})


def may_be_set(*names: str) -> bool:
    """Whether a variable sets one of these, or ``settings.toml`` says anything, mistyped or not.

    Only then is it worth the time to load what checks settings.

    Raises:
        SettingsFileError: If ``settings.toml`` cannot be read.
    """
    variables = {name.upper() for name, value in os.environ.items() if value}
    return bool(locations.settings_lines()) or not variables.isdisjoint(
        f"KP_{name.upper()}" for name in names
    )
