"""What is set outside of the program: ``KP_*``, ``settings.toml``, the reference CLI's files."""

import os
import re
from abc import abstractmethod
from collections.abc import Collection
from difflib import get_close_matches
from typing import Any, Final, NamedTuple

from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, EnvSettingsSource, PydanticBaseSettingsSource

from kp_middleware import locations
from kp_middleware.errors import SettingsFileError
from kp_middleware.logins import LOGIN_KEYS, PUBLIC_REGISTRY, read_login

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


class OutsideSource(PydanticBaseSettingsSource):
    """One place outside of the program, read when it is made; reading raises nothing.

    ``unclear`` are settings that a part which cannot be read may have meant to set.
    """

    def __init__(self, settings_cls: type[BaseSettings]) -> None:
        super().__init__(settings_cls)
        self.values: dict[str, Any] = {}
        self.problems: list[SettingProblem] = []
        self.unclear: set[str] = set()

    @abstractmethod
    def origin(self, name: str, /) -> str:
        """Name the place in short: the variable, ``settings.toml`` or ``reference files``."""

    def source(self, name: str) -> str:
        """Name the place so that a person finds it: the path, and the line where it is known."""
        return self.origin(name)

    def get_field_value(self, _: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """Return the value, its name, and False: nothing is left to decode."""
        return self.values.get(field_name), field_name, False

    def __call__(self) -> dict[str, Any]:
        """Return the values that apply."""
        return self.values


class Variables(OutsideSource):
    """``KP_…`` in the environment, in capitals or not."""

    def __init__(self, settings_cls: type[BaseSettings]) -> None:
        super().__init__(settings_cls)
        self.values = EnvSettingsSource(settings_cls)()

    def origin(self, name: str) -> str:
        """Spell the variable as the environment does."""
        variable = f"KP_{name}".upper()
        return next((one for one in os.environ if one.upper() == variable), variable)


class SettingsFile(OutsideSource):
    """The user's ``settings.toml``."""

    def __init__(self, settings_cls: type[BaseSettings]) -> None:
        super().__init__(settings_cls)
        self._path = locations.settings_file()
        names = settings_cls.model_fields
        try:
            lines = locations.settings_lines()
        except SettingsFileError as error:
            self.problems = [SettingProblem(str(self._path), "", error.problem)]
            self.unclear = {*names}
            return
        self._text = self._path.read_text(encoding="utf-8") if lines else ""
        self.values = {name: value for name, value in lines.items() if name in names}
        for name in lines.keys() - names.keys():
            words = f"there is no setting {name!a}: {did_you_mean(name, names)}"
            self.problems.append(SettingProblem(self.source(name), "", words))

    def origin(self, _: str) -> str:
        """Name the file."""
        return self._path.name

    def source(self, name: str) -> str:
        """Name the path, and the line unless the setting's name is written in another way."""
        found = re.search(rf"(?m)^[ \t]*\[*{re.escape(name)}\b", self._text)
        line = f", line {self._text.count(chr(10), 0, found.start()) + 1}" if found else ""
        return f"{self._path}{line}"


class ReferenceFiles(OutsideSource):
    """The files of the reference command line: key and agent only for their own registry.

    ``unused`` says why its key is not used, and what to do.
    """

    def __init__(self, settings_cls: type[BaseSettings]) -> None:
        super().__init__(settings_cls)
        self._login = login = read_login()
        self.unused: str | None = None
        self.values = {**login.values}
        for file, why in login.unreadable.items():
            words = f"{why}; correct the file, remove it, or log in again"
            self.problems.append(SettingProblem(str(login.folder / file), "", words))
            self.unclear |= {name for name, (where, _) in LOGIN_KEYS.items() if where == file}
        for name in login.no_texts:
            self.problems.append(SettingProblem(self.source(name), name, "a text is needed"))
            self.unclear.add(name)

    def origin(self, _: str) -> str:
        """Name them all."""
        return "reference files"

    def source(self, name: str) -> str:
        """Name the path and the key."""
        file, key = LOGIN_KEYS[name]
        return f"{self._login.folder / file}: {key}"

    def __call__(self) -> dict[str, Any]:
        """Return the values that apply, given those that pydantic-settings has read before."""
        return self.beside(self.current_state)

    def beside(self, nearer: dict[str, Any]) -> dict[str, Any]:
        """Return the values that apply, given those of keywords and nearer sources."""
        named = nearer.get("registry_url") or self.values.get("registry_url")
        why = self._login.why_unused(str(named or PUBLIC_REGISTRY))
        if why is None:
            return self.values
        self.unused = None if "api_key" in nearer else why
        return {k: v for k, v in self.values.items() if k not in {"api_key", "agent_id"}}


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
