"""The settings of whoever types a command."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kp_middleware import locations
from kp_middleware.errors import SettingsFileError

if TYPE_CHECKING:
    from kp_middleware.settings import Settings

_ANY_TEXT: Final = {"KP_AGENT_ID", "KP_DOMAIN", "KP_MODEL_PATH", "KP_TRACING"}
"""Variables that no text is wrong for."""


def read_settings(db: Path) -> "Settings":
    """From the environment and the files, for this file of traces.

    Raises:
        click.ClickException: If anything that is set is wrong: an answer by other settings than the
            user's would be a wrong one.
    """
    from kp_middleware.cli.installation.origins import checked_settings

    return checked_settings({"db": db})


def may_be_set(*names: str) -> bool:
    """Whether a variable sets one of these, or ``settings.toml`` says anything, mistyped or not.

    Only then is it worth the time to load what checks settings.
    """
    variables = {name.upper() for name, value in os.environ.items() if value}
    return _says_anything() or not variables.isdisjoint(f"KP_{name.upper()}" for name in names)


def wrong_settings() -> list[str]:
    """What is wrong with what is set outside of programs, each in one line with its source.

    What checks settings is not loaded where nothing is set that could be wrong.
    """
    folder = locations.reference_folder()
    variables = {name.upper() for name, value in os.environ.items() if value}
    files = (folder / name for name in ("config.json", "auth.json"))
    if not (
        any(name.startswith("KP_") for name in variables - _ANY_TEXT)
        or _says_anything()
        or any(map(os.path.lexists, files))
    ):
        return []
    from kp_middleware.cli.installation.origins import settings_problems

    return settings_problems()


def _says_anything() -> bool:
    try:
        return bool(locations.settings_lines())
    except SettingsFileError:
        return True
