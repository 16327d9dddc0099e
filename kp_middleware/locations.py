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
    return Path(os.path.expanduser("~/.config")) / "knowledgepulse"  # noqa: PTH111 - never raises


def database_file() -> Path:
    """The file of traces: ``KP_DB``, else ``db`` of the settings file, else in the data folder.

    Raises:
        SettingsFileError: If the settings file would have to say it, and cannot.
    """
    named = os.environ.get("KP_DB") or settings_lines().get("db")
    if not isinstance(named, str | None):
        raise SettingsFileError(settings_file(), "db is no text")
    return Path(os.path.expanduser(named)) if named else default_database_file()  # noqa: PTH111


def default_database_file() -> Path:
    """The file of traces where nobody names another."""
    return _dirs.user_data_path / "kp.db"


def why_no_file(path: Path) -> str | None:
    """Why no file of traces can be here, whoever waits; None where one can be, or is."""
    try:
        if path.is_dir():
            return f"{path} is a folder: name a file in it, such as {path / 'kp.db'}"
        if path.exists():
            return None
        folder = next(parent for parent in path.absolute().parents if parent.exists())
    except (OSError, ValueError) as error:
        return f"{path} cannot be a file: {getattr(error, 'strerror', None) or error}"
    if folder.is_dir() and os.access(folder, os.W_OK):
        return None
    return f"{path} cannot be made: name a file in a folder that you may write to"


def settings_lines() -> dict[str, Any]:
    """What the settings file says, unchecked; nothing where there is none.

    Raises:
        SettingsFileError: If it cannot be read.
    """
    path = settings_file()
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except RecursionError as error:
        raise SettingsFileError(path, "it is nested too deeply") from error
    except (OSError, ValueError) as error:
        raise SettingsFileError(path, str(error)) from error
