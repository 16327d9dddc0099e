"""Where our files are on this machine. Imports nothing heavy: every command begins here."""

import os
import tomllib
from pathlib import Path
from typing import Any

from platformdirs import PlatformDirs

from kp_middleware.errors import SettingsFileError

_dirs = PlatformDirs("kp-middleware", appauthor=False)


def settings_file() -> Path:
    """The user's own defaults: ``settings.toml``, which need not exist."""
    return _dirs.user_config_path / "settings.toml"


def cache_folder() -> Path:
    """What can be made again: the converted embedding model."""
    return _dirs.user_cache_path


def state_folder() -> Path:
    """What all processes of the user share and no one would miss in a backup."""
    return _dirs.user_state_path


def pacing_file() -> Path:
    """How fast each agent may send just now, and which process is sending."""
    return state_folder() / "pacing.db"


def pacing_files(db: Path) -> tuple[Path, Path]:
    """The usual one, and one beside the file of traces, for where the first cannot be written."""
    return pacing_file(), db.with_name(f"{db.name}.pacing")


def reference_folder() -> Path:
    """Where the reference command line keeps its registry, key and agent id."""
    return Path.home() / ".config" / "knowledgepulse"


def database_file() -> Path:
    """The file of traces: ``KP_DB``, else ``db`` of the settings file, else in the data folder.

    Raises:
        SettingsFileError: If the settings file would have to say it, and cannot.
    """
    named = os.environ.get("KP_DB") or settings_lines().get("db")
    if not isinstance(named, str | None):
        raise SettingsFileError(settings_file(), "db is no text")
    return Path(named).expanduser() if named else _dirs.user_data_path / "kp.db"


def settings_lines() -> dict[str, Any]:
    """What the settings file says, unchecked; nothing where there is none.

    Raises:
        SettingsFileError: If it cannot be read.
    """
    path = settings_file()
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise SettingsFileError(path, str(error)) from error
