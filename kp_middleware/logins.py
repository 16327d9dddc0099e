"""The files of the reference command line: its key belongs to its registry, and to no other.

Light: commands that read load this.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from kp_middleware import locations
from kp_middleware.errors import SettingsFileError

PUBLIC_REGISTRY: Final = "https://registry.openknowledgepulse.org"
"""The registry that traces go to by default."""

_WITHOUT_A_CONFIG: Final = "http://localhost:3000"
"""The registry of the reference command line while no file names another."""

LOGIN_KEYS: Final = {
    "registry_url": ("config.json", "registryUrl"),
    "visibility": ("config.json", "defaultVisibility"),
    "domain": ("config.json", "defaultDomain"),
    "api_key": ("auth.json", "apiKey"),
    "agent_id": ("auth.json", "agentId"),
}
"""For each setting the file, and the key in it."""


class Login(NamedTuple):
    """The login of the reference command line, as its files have it; empty values are left out."""

    folder: Path = Path()
    values: Mapping[str, str] = {}
    unreadable: Mapping[str, str] = {}
    no_texts: frozenset[str] = frozenset()

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


def read_login() -> Login:
    """Read the login of this user; it is empty where there is none. Never raises."""
    try:
        folder = locations.reference_folder()
    except RuntimeError:  # there is no home
        return Login()
    stored: dict[str, Mapping[str, object]] = {}
    unreadable: dict[str, str] = {}
    for name in ("config.json", "auth.json"):
        try:
            stored[name] = _read(folder / name)
        except (OSError, ValueError, RecursionError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is no JSON object"
            unreadable[name] = f"it cannot be read: {why}"  # the rest of an error may hold a key
    found = {
        setting: value
        for setting, (name, key) in LOGIN_KEYS.items()
        if (value := stored.get(name, {}).get(key))
    }
    texts = {setting: value for setting, value in found.items() if isinstance(value, str)}
    return Login(folder, texts, unreadable, frozenset(found.keys() - texts.keys()))


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
