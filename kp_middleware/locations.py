"""The locations of our files on this machine, and what is set outside of the program.

That is in ``KP_*``, ``settings.toml`` and the reference command line's files. Light: every command
imports this.
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

PUBLIC_REGISTRY: Final = "https://registry.openknowledgepulse.org"
"""The registry that traces go to by default."""

_WITHOUT_A_CONFIG: Final = "http://localhost:3000"
"""The registry of the reference command line while no file names another."""

_LOGIN_KEYS: Final = {
    "config.json": {
        "registry_url": "registryUrl",
        "visibility": "defaultVisibility",
        "domain": "defaultDomain",
    },
    "auth.json": {"api_key": "apiKey", "agent_id": "agentId"},
}
"""For each file the settings, and the key of each."""

_NO_SETTINGS: Final = ("KP_MODEL_PATH", "KP_TRACING")
"""Variables of ours that are read elsewhere."""


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


class SettingProblem(NamedTuple):
    """A problem outside of the program; nothing is sent until it is corrected.

    ``words`` never hold the value; ``name`` is empty where it is not known which is meant.
    """

    source: str
    name: str
    words: str

    def __str__(self) -> str:
        if not self.name:
            return f"{self.source}: {self.words}"
        return f"{self.name}: {self.words} (from {self.source})"


@dataclass
class Source:
    """One place outside of the program, as it was read.

    Attributes:
        values: What it sets.
        places: Where each value stands, so that a person finds it.
        origin: The same in short; empty where the places are short themselves.
        problems: What is wrong there.
        unclear: Settings that a part which cannot be read may have meant to set.
    """

    values: dict[str, Any]
    places: dict[str, str]
    origin: str = ""
    problems: list[SettingProblem] = field(default_factory=list)
    unclear: set[str] = field(default_factory=set)


def variables(settings_cls: "type[BaseSettings]") -> Source:
    """Read ``KP_…`` in the environment, in capitals or not."""
    from pydantic_settings import EnvSettingsSource

    spelled = {name.upper(): name for name in os.environ}
    values = EnvSettingsSource(settings_cls)()
    return Source(values, {name: spelled[f"KP_{name}".upper()] for name in values})


def settings_of_file(names: Collection[str]) -> Source:
    """Read the user's ``settings.toml``; ``names`` are those of all settings."""
    path = settings_file()
    try:
        lines = settings_lines()
    except SettingsFileError as error:
        problem = SettingProblem(str(path), "", error.problem)
        return Source({}, {}, problems=[problem], unclear={*names})
    source = Source({}, dict.fromkeys(lines, str(path)), path.name)
    for name, value in lines.items():
        if name in names:
            source.values[name] = value
        else:
            words = f"there is no setting {name!a}: {did_you_mean(name, names)}"
            source.problems.append(SettingProblem(str(path), "", words))
    return source


def read_login() -> Source:
    """Read the login of the reference command line; empty values are left out. Never raises."""
    login = Source({}, {}, "reference files")
    for path, keys in ((reference_folder() / file, keys) for file, keys in _LOGIN_KEYS.items()):
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(stored, dict):
                raise ValueError
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, ValueError, RecursionError) as error:  # its words may hold a key
            why = error.strerror if isinstance(error, OSError) else "it is no JSON object"
            words = f"it cannot be read: {why}; correct the file, remove it, or log in again"
            login.problems.append(SettingProblem(str(path), "", words))
            login.unclear |= keys.keys()
            continue
        for name, key in keys.items():
            value, login.places[name] = stored.get(key), f"{path}: {key}"
            if isinstance(value, str) and value:
                login.values[name] = value
            elif value:
                login.problems.append(SettingProblem(login.places[name], name, "a text is needed"))
                login.unclear.add(name)
    return login


def why_unused(login: Source, registry_url: str) -> str | None:
    """Say why a login's key is not used for a registry, and what to do; None if it is, or none."""
    named = login.values.get("registry_url")
    if "api_key" not in login.values or (named or "").rstrip("/") == registry_url.rstrip("/"):
        return None
    config, auth = reference_folder() / "config.json", reference_folder() / "auth.json"
    if named is None:
        return (
            f"the API key in {auth} is not used, because {config} does not name its registry"
            f" (kp auth register asks {_WITHOUT_A_CONFIG} then): write the registry of that key"
            f" into that file as registryUrl, or set KP_API_KEY to a key of {registry_url}"
        )
    return (
        f"the API key in {auth} is not used: {config} says that it is of {named}, and traces go to"
        f" {registry_url}; set KP_API_KEY to a key of that one, or no registry_url, to send to"
        " where the key is of"
    )


def why_login_is_unused() -> str | None:
    """Say why programs without keywords do not use the login; None if they do, or if none."""
    try:
        lines = settings_lines()
    except SettingsFileError:
        return None
    if os.environ.get("KP_API_KEY") or lines.get("api_key"):
        return None
    login, named = read_login(), os.environ.get("KP_REGISTRY_URL") or lines.get("registry_url")
    return why_unused(login, str(named or login.values.get("registry_url") or PUBLIC_REGISTRY))


def unknown_variables(names: Collection[str]) -> dict[str, str]:
    """Return each ``KP_…`` that nobody reads, with what to do about it."""
    known = [*(f"KP_{name.upper()}" for name in names), *_NO_SETTINGS]
    return {
        variable: did_you_mean(variable.upper(), known)
        for variable in sorted(os.environ)
        if variable.upper().startswith("KP_") and variable.upper() not in known
    }


def did_you_mean(name: str, names: Collection[str]) -> str:
    """Say what to do about a name that none has."""
    alike = get_close_matches(name, names, n=1)
    return f"did you mean {alike[0]}?" if alike else "remove it"
