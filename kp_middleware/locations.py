"""The locations of our files, and the settings made outside of the program.

These are ``KP_*`` variables, ``settings.toml`` and the reference CLI's files. Every command imports
this module, so it loads little.
"""

import json
import os
import tomllib
from collections.abc import Collection
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from platformdirs import PlatformDirs

from kp_middleware.errors import SettingsFileError

if TYPE_CHECKING:
    from pydantic_settings import BaseSettings

__all__ = ["PUBLIC_REGISTRY", "SettingProblem", "Source", "cache_folder", "database_file",
           "default_database_file", "did_you_mean", "file_problem", "pacing_file", "pacing_files",
           "prices_file", "read_login", "read_settings_file", "reference_folder", "settings_file",
           "settings_from_file", "unknown_variables", "unused_default_login_reason",
           "unused_login_reason", "variables"]  # fmt: skip

PUBLIC_REGISTRY: Final = "https://registry.openknowledgepulse.org"
"""The default registry."""

_REFERENCE_DEFAULT: Final = "http://localhost:3000"
"""The default registry of the reference CLI."""

_LOGIN_KEYS: Final = {
    "config.json": {
        "registry_url": "registryUrl",
        "visibility": "defaultVisibility",
        "domain": "defaultDomain",
    },
    "auth.json": {"api_key": "apiKey", "agent_id": "agentId"},
}
"""The reference CLI's keys by file and setting."""

_OTHER_VARIABLES: Final = ("KP_MODEL_PATH", "KP_TRACING")
"""Variables that are not settings."""


_dirs = PlatformDirs("kp-middleware", appauthor=False)


def _folder(name: str) -> Path:
    try:
        return Path(getattr(_dirs, f"user_{name}_dir"))
    except RuntimeError:  # no home folder; the working folder may be anyone's
        return Path("/nonexistent/kp-middleware")


def settings_file() -> Path:
    """Return the path of ``settings.toml``, which may not exist."""
    return _folder("config") / "settings.toml"


def prices_file() -> Path:
    """Return the path of ``prices.toml``, the user's model prices, which may not exist."""
    return _folder("config") / "prices.toml"


def cache_folder() -> Path:
    """Return the cache folder, for example for the converted embedding model."""
    return _folder("cache")


def pacing_file() -> Path:
    """Return the path of the shared pacing file, with each agent's pace and sender."""
    return _folder("state") / "pacing.db"


def pacing_files(db: Path) -> tuple[Path, Path]:
    """Return the shared pacing file and the fallback next to the database file."""
    return pacing_file(), db.with_name(f"{db.name}.pacing")


def reference_folder() -> Path:
    """Return the folder with the reference CLI's registry, key and agent id."""
    return Path(os.path.expanduser("~/.config")) / "knowledgepulse"  # noqa: PTH111 - never raises


def database_file() -> Path:
    """Return the database file: ``KP_DB``, ``db`` in ``settings.toml``, or the default."""
    named = os.environ.get("KP_DB") or read_settings_file().get("db")
    if not isinstance(named, str | None):
        raise SettingsFileError(settings_file(), "db must be a string")
    return Path(os.path.expanduser(named)) if named else default_database_file()  # noqa: PTH111


def default_database_file() -> Path:
    """Return the default database file, in the data folder."""
    return _folder("data") / "kp.db"


def file_problem(path: Path) -> str | None:
    """Return why a path cannot be a database file, or None if it can."""
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
    return f"{path} cannot be created: choose a folder that you can write to"


def read_settings_file() -> dict[str, Any]:
    """Return the unchecked contents of the settings file; empty if there is none."""
    path = settings_file()
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise SettingsFileError(path, getattr(error, "strerror", None) or str(error)) from error


class SettingProblem(NamedTuple):
    """An invalid setting outside of the program; nothing is sent until it is corrected."""

    source: str
    name: str  # empty if the setting is unknown
    words: str  # never contain the value

    def __str__(self) -> str:
        if not self.name:
            return f"{self.source}: {self.words}"
        return f"{self.name}: {self.words} (from {self.source})"


@dataclass
class Source:
    """A source of settings outside of the program."""

    values: dict[str, Any]
    places: dict[str, str]  # the location of each value, as shown to users
    origin: str = ""  # a short name for all locations; empty if they are short
    problems: list[SettingProblem] = field(default_factory=list)  # the invalid parts
    unreadable: set[str] = field(default_factory=set)  # settings of an unreadable part


def variables(settings_cls: "type[BaseSettings]") -> Source:
    """Read the ``KP_…`` variables, in upper or lower case."""
    from pydantic_settings import EnvSettingsSource

    spelled = {name.upper(): name for name in os.environ}
    is_any = any(name.startswith("KP_") for name in spelled)  # the source takes a millisecond
    values = EnvSettingsSource(settings_cls)() if is_any else {}
    return Source(values, {name: spelled[f"KP_{name}".upper()] for name in values})


def settings_from_file(names: Collection[str]) -> Source:
    """Read the user's ``settings.toml``; ``names`` are the valid settings."""
    path = settings_file()
    try:
        settings = read_settings_file()
    except SettingsFileError as error:
        problem = SettingProblem(str(path), "", error.problem)
        return Source({}, {}, path.name, problems=[problem], unreadable={*names})
    source = Source({}, dict.fromkeys(settings, str(path)), path.name)
    for name, value in settings.items():
        if name in names:
            source.values[name] = value
        else:
            words = f"unknown setting {name!a}: {did_you_mean(name, names)}"
            source.problems.append(SettingProblem(str(path), "", words))
    return source


def read_login() -> Source:
    """Read the reference CLI's login, without empty values. Never raises."""
    login = Source({}, {}, "reference files")
    for path, keys in ((reference_folder() / file, keys) for file, keys in _LOGIN_KEYS.items()):
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(stored, dict):
                raise ValueError
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, ValueError, RecursionError) as error:  # its words may hold a key
            reason = error.strerror if isinstance(error, OSError) else "not a JSON object"
            words = f"it cannot be read: {reason}; correct the file, remove it, or log in again"
            login.problems.append(SettingProblem(str(path), "", words))
            login.unreadable |= keys.keys()
            continue
        for name, key in keys.items():
            value, login.places[name] = stored.get(key), f"{path}: {key}"
            if isinstance(value, str) and value:
                login.values[name] = value
            elif value:
                login.problems.append(SettingProblem(login.places[name], name, "must be a string"))
                login.unreadable.add(name)
    return login


def unused_login_reason(login: Source, registry_url: str) -> str | None:
    """Return why a login's key is not used for a registry, with a remedy, or None."""
    named = login.values.get("registry_url")
    if "api_key" not in login.values or (named or "").rstrip("/") == registry_url.rstrip("/"):
        return None
    config, auth = reference_folder() / "config.json", reference_folder() / "auth.json"
    if named is None:
        return (
            f"the API key in {auth} is not used, because {config} does not name its registry"
            f" (kp auth register uses {_REFERENCE_DEFAULT} then): add the key's registry to that"
            f" file as registryUrl, or set KP_API_KEY to a key of {registry_url}"
        )
    return (
        f"the API key in {auth} is not used: {config} names {named} as its registry, but traces go"
        f" to {registry_url}; set KP_API_KEY to a key of that registry, or unset registry_url"
    )


def unused_default_login_reason() -> str | None:
    """Return why programs without keywords do not use the login, or None."""
    try:
        settings = read_settings_file()
    except SettingsFileError:
        return None
    if os.environ.get("KP_API_KEY") or settings.get("api_key"):
        return None
    login, named = read_login(), os.environ.get("KP_REGISTRY_URL") or settings.get("registry_url")
    return unused_login_reason(
        login, str(named or login.values.get("registry_url") or PUBLIC_REGISTRY)
    )


def unknown_variables(names: Collection[str]) -> dict[str, str]:
    """Return the unknown ``KP_…`` variables, each with a remedy."""
    known = [*(f"KP_{name.upper()}" for name in names), *_OTHER_VARIABLES]
    return {
        variable: did_you_mean(variable.upper(), known)
        for variable in sorted(os.environ)
        if variable.upper().startswith("KP_") and variable.upper() not in known
    }


def did_you_mean(name: str, names: Collection[str]) -> str:
    """Return a remedy for an unknown name."""
    matches = get_close_matches(name, names, n=1)
    return f"did you mean {matches[0]}?" if matches else "remove it"
