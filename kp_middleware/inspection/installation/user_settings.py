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


def is_any_set(*names: str) -> bool:
    """Whether the user has set one of these: only then is it worth the time to load what checks it.

    Raises:
        SettingsFileError: If ``settings.toml`` cannot be read.
    """
    variables = {name.upper() for name, value in os.environ.items() if value}
    lines = locations.settings_lines()
    return any(f"KP_{name.upper()}" in variables or name in lines for name in names)
