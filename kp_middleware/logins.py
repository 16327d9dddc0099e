"""The login of the reference command line: its key belongs to its registry, and to no other.

Light: commands that read load this.
"""

import json
import logging
import os
from pathlib import Path
from typing import Any, Final, NamedTuple

from kp_middleware import locations
from kp_middleware.errors import SettingsFileError

logger = logging.getLogger("kp_middleware")

PUBLIC_REGISTRY: Final = "https://registry.openknowledgepulse.org"
"""Where traces go if nothing names another."""

_WITHOUT_A_CONFIG: Final = "http://localhost:3000"
"""Where the reference command line registers, and sends, while no file names a registry."""


class Login(NamedTuple):
    """What its files say; what they do not say as a text is None.

    Attributes:
        folder: Where they are.
        registry_url: Of ``config.json``.
        visibility: Of ``config.json``.
        domain: Of ``config.json``.
        api_key: Of ``auth.json``.
        agent_id: Of ``auth.json``.
    """

    folder: Path
    registry_url: str | None
    visibility: str | None
    domain: str | None
    api_key: str | None
    agent_id: str | None

    def why_unused(self, registry_url: str) -> str | None:
        """Why its key is not used for this registry, and what to do; None if it is, or has none."""
        if self.api_key is None or self._is_of(registry_url):
            return None
        config, auth = self.folder / "config.json", self.folder / "auth.json"
        if self.registry_url is None:
            return (
                f"the API key in {auth} is not used, because {config} does not name its registry"
                f" (kp auth register asks {_WITHOUT_A_CONFIG} then): write the registry of that key"
                " into that file as registryUrl, or set KP_API_KEY to a key of"
                f" {registry_url}"
            )
        return (
            f"the API key in {auth} is not used: {config} says that it is of {self.registry_url},"
            f" and traces go to {registry_url}; set KP_API_KEY to a key of that one, or no"
            " registry_url, to send to where the key is of"
        )

    def _is_of(self, registry_url: str) -> bool:
        return (self.registry_url or "").rstrip("/") == registry_url.rstrip("/")


def read_login() -> Login:
    """The login of this user; with nothing in it where there is none. Never raises."""
    try:
        folder = locations.reference_folder()
    except RuntimeError:  # there is no home
        return Login(Path(), None, None, None, None, None)
    config, auth = _read(folder / "config.json"), _read(folder / "auth.json")
    return Login(
        folder,
        *(_text(config, name) for name in ("registryUrl", "defaultVisibility", "defaultDomain")),
        *(_text(auth, name) for name in ("apiKey", "agentId")),
    )


def read_json(path: Path) -> dict[str, Any]:
    """What one of its files stores; nothing where there is none.

    Raises:
        OSError: If it cannot be read.
        ValueError: If it is no JSON object.
        RecursionError: If it is nested too deeply.
    """
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    if not isinstance(stored, dict):
        raise ValueError("it is no JSON object")
    return stored


def why_login_is_unused() -> str | None:
    """Why the login is not used by what has no keywords of its own; None if it is, or needs not be.

    The settings in short, without what checks them.
    """
    try:
        lines = locations.settings_lines()
    except SettingsFileError:
        return None
    if os.environ.get("KP_API_KEY") or lines.get("api_key"):
        return None
    login, named = read_login(), os.environ.get("KP_REGISTRY_URL") or lines.get("registry_url")
    return login.why_unused(str(named or login.registry_url or PUBLIC_REGISTRY))


def _text(stored: dict[str, Any], name: str) -> str | None:
    value = stored.get(name)
    return value if isinstance(value, str) and value else None


def _read(path: Path) -> dict[str, Any]:
    try:
        return read_json(path)
    except (OSError, ValueError, RecursionError):
        logger.warning("%s cannot be read as JSON: it is ignored", path)
        return {}
