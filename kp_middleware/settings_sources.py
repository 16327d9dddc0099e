"""Settings from outside the program: ``KP_*``, ``settings.toml``, the reference CLI's files.

Light: commands that read load this.
"""

import json
import os
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kp_middleware import locations
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

    ``origin`` names the place of a setting in short, and ``place`` so that a person finds it.
    ``unclear`` are settings that a part which cannot be read may have meant to set.
    """

    values: dict[str, Any]
    origin: Callable[[str], str]
    place: Callable[[str], str]
    problems: list[SettingProblem] = field(default_factory=list)
    unclear: set[str] = field(default_factory=set)


@dataclass
class Login(Source):
    """The login of the reference command line, as its files have it; empty values are left out."""

    folder: Path = Path()

    def why_unused(self, registry_url: str) -> str | None:
        """Say why its key is not used for this registry, and what to do; None if it is, or none."""
        named = self.values.get("registry_url")
        if "api_key" not in self.values or (named or "").rstrip("/") == registry_url.rstrip("/"):
            return None
        config, auth = self.folder / "config.json", self.folder / "auth.json"
        if named is None:
            return (
                f"the API key in {auth} is not used, because {config} does not name its registry"
                f" (kp auth register asks {_WITHOUT_A_CONFIG} then): write the registry of that key"
                " into that file as registryUrl, or set KP_API_KEY to a key of"
                f" {registry_url}"
            )
        return (
            f"the API key in {auth} is not used: {config} says that it is of {named},"
            f" and traces go to {registry_url}; set KP_API_KEY to a key of that one, or no"
            " registry_url, to send to where the key is of"
        )


def variables(settings_cls: "type[BaseSettings]") -> Source:
    """Read ``KP_…`` in the environment, in capitals or not."""
    from pydantic_settings import EnvSettingsSource

    spelled = {name.upper(): name for name in os.environ}

    def origin(name: str) -> str:
        return spelled[f"KP_{name}".upper()]

    return Source(EnvSettingsSource(settings_cls)(), origin, origin)


def settings_file(names: Collection[str]) -> Source:
    """Read the user's ``settings.toml``; ``names`` are those of all settings."""
    path = locations.settings_file()
    try:
        lines = locations.settings_lines()
    except SettingsFileError as error:
        problem = SettingProblem(str(path), "", error.problem)
        return Source({}, str, str, [problem], {*names})
    text = path.read_text(encoding="utf-8") if lines else ""

    def place(name: str) -> str:
        found = re.search(rf"(?m)^[ \t]*\[*{re.escape(name)}\b", text)
        return f"{path}, line {text.count(chr(10), 0, found.start()) + 1}" if found else str(path)

    problems = [
        SettingProblem(
            place(name), "", f"there is no setting {name!a}: {did_you_mean(name, names)}"
        )
        for name in lines.keys() - names
    ]
    values = {name: value for name, value in lines.items() if name in names}
    return Source(values, lambda _: path.name, place, problems)


def read_login() -> Login:
    """Read the login of this user; it is empty where there is none. Never raises."""
    folder = locations.reference_folder()

    def place(name: str) -> str:
        file, keys = next(one for one in _LOGIN_KEYS.items() if name in one[1])
        return f"{folder / file}: {keys[name]}"

    login = Login({}, lambda _: "reference files", place, folder=folder)
    for file, keys in _LOGIN_KEYS.items():
        try:
            stored = _read(folder / file)
        except (OSError, ValueError, RecursionError) as error:  # its words may hold a key
            why = error.strerror if isinstance(error, OSError) else "it is no JSON object"
            words = f"it cannot be read: {why}; correct the file, remove it, or log in again"
            login.problems.append(SettingProblem(str(folder / file), "", words))
            login.unclear |= keys.keys()
            continue
        for name, key in keys.items():
            value = stored.get(key)
            if isinstance(value, str) and value:
                login.values[name] = value
            elif value:
                login.problems.append(SettingProblem(place(name), name, "a text is needed"))
                login.unclear.add(name)
    return login


def why_login_is_unused() -> str | None:
    """Say why programs without keywords do not use the login; None if they do, or if none."""
    try:
        lines = locations.settings_lines()
    except SettingsFileError:
        return None
    if os.environ.get("KP_API_KEY") or lines.get("api_key"):
        return None
    login, named = read_login(), os.environ.get("KP_REGISTRY_URL") or lines.get("registry_url")
    return login.why_unused(str(named or login.values.get("registry_url") or PUBLIC_REGISTRY))


def _read(path: Path) -> dict[str, object]:
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    if not isinstance(stored, dict):
        raise ValueError
    return stored


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
