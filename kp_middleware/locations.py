"""The locations of our files on this machine. Light: every command imports this."""

import os
import tomllib
from pathlib import Path
from typing import Any

from platformdirs import PlatformDirs

from kp_middleware.errors import SettingsFileError

_dirs = PlatformDirs("kp-middleware", appauthor=False)


def settings_file() -> Path:
    """Return the path of ``settings.toml``, which need not exist."""
    return _dirs.user_config_path / "settings.toml"


def prices_file() -> Path:
    """Return the path of ``prices.toml``, the user's prices of models; it need not exist."""
    return _dirs.user_config_path / "prices.toml"


def cache_folder() -> Path:
    """Return the folder for the converted embedding model, which can be rebuilt."""
    return _dirs.user_cache_path


def pacing_file() -> Path:
    """Return the path of the shared pacing file: each agent's pace, and who is sending."""
    return _dirs.user_state_path / "pacing.db"


def pacing_files(db: Path) -> tuple[Path, Path]:
    """Return the shared pacing file, and the fallback next to the file of traces."""
    return pacing_file(), db.with_name(f"{db.name}.pacing")


def reference_folder() -> Path:
    """Return the folder in which the reference CLI keeps its registry, key and agent id."""
    return Path(os.path.expanduser("~/.config")) / "knowledgepulse"  # noqa: PTH111 - never raises


def database_file() -> Path:
    """Return the file of traces: ``KP_DB``, ``db`` of ``settings.toml``, or the default."""
    named = os.environ.get("KP_DB") or settings_lines().get("db")
    if not isinstance(named, str | None):
        raise SettingsFileError(settings_file(), "db is no text")
    return Path(os.path.expanduser(named)) if named else default_database_file()  # noqa: PTH111


def default_database_file() -> Path:
    """Return the default file of traces, in the data folder."""
    return _dirs.user_data_path / "kp.db"


def why_no_file(path: Path) -> str | None:
    """Return why no file of traces can be at a path; None if one can be, or is."""
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
    """Return the unchecked contents of the settings file; empty if there is none."""
    path = settings_file()
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except RecursionError as error:
        raise SettingsFileError(path, "it is nested too deeply") from error
    except (OSError, ValueError) as error:
        raise SettingsFileError(path, str(error)) from error
