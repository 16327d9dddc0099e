"""What is set outside of the program: ``KP_*``, ``settings.toml``, the reference CLI's files."""

import json
import os
import re
from collections.abc import Collection, Iterator
from difflib import get_close_matches
from typing import Any, Final, NamedTuple

from kp_middleware import locations
from kp_middleware.errors import SettingsFileError
from kp_middleware.logins import read_json

_PREFIX: Final = "KP_"
REFERENCE: Final = "reference files"
"""The origin of what the reference command line has stored."""

_NO_SETTINGS: Final = ("KP_MODEL_PATH", "KP_TRACING")
"""Variables of ours that are read elsewhere."""

_REFERENCE: Final = {
    "config.json": {
        "registryUrl": "registry_url",
        "defaultVisibility": "visibility",
        "defaultDomain": "domain",
    },
    "auth.json": {"apiKey": "api_key", "agentId": "agent_id"},
}


class Said(NamedTuple):
    """One setting, as one place says it.

    Attributes:
        name: Of the setting.
        value: Not checked.
        origin: The variable, ``settings.toml`` or ``reference files``.
        source: The same with all that helps to find it: the path, the line where that is known.
    """

    name: str
    value: Any
    origin: str
    source: str


class SettingProblem(NamedTuple):
    """What is wrong outside of the program: nothing is sent until it is corrected.

    Attributes:
        source: The variable, or the file with the line where that is known.
        name: The setting; empty where it is not known which are meant.
        words: What is wrong, and which values are allowed; never the value.
        hides: The settings that the source may have meant to set.
    """

    source: str
    name: str
    words: str
    hides: tuple[str, ...]

    def __str__(self) -> str:
        if not self.name:
            return f"{self.source}: {self.words}"
        return f"{self.name}: {self.words} (from {self.source})"


class Outside(NamedTuple):
    """What all places say, the nearest last, because it wins.

    Attributes:
        parts: Settings; and where they stand, files that cannot be read and lines that set nothing.
    """

    parts: tuple[Said | SettingProblem, ...]

    @property
    def said(self) -> tuple[Said, ...]:
        """The settings."""
        return tuple(part for part in self.parts if isinstance(part, Said))

    @property
    def problems(self) -> tuple[SettingProblem, ...]:
        """What sets nothing."""
        return tuple(part for part in self.parts if isinstance(part, SettingProblem))


def read_outside(names: Collection[str]) -> Outside:
    """Read every place; nothing is checked, and nothing raises.

    Args:
        names: Of the settings that there are.
    """
    return Outside((*_of_the_reference(names), *_of_the_file(names), *_of_the_environment(names)))


def nearest(said: Collection[Said]) -> dict[str, Any]:
    """The last value of each name; tables, such as ``profiles``, are put together."""
    values: dict[str, Any] = {}
    for one in said:
        before = values.get(one.name)
        both = isinstance(before, dict) and isinstance(one.value, dict)
        values[one.name] = {**before, **one.value} if both else one.value  # type: ignore[dict-item]
    return values


def unknown_variables(names: Collection[str]) -> dict[str, str]:
    """Each ``KP_…`` that nobody reads, with what to do about it."""
    variables = [f"{_PREFIX}{name.upper()}" for name in names]
    known = {*variables, *_NO_SETTINGS}
    return {
        variable: no_setting(variable.upper(), [*variables, *_NO_SETTINGS])
        for variable in sorted(os.environ)
        if variable.upper().startswith(_PREFIX) and variable.upper() not in known
    }


def no_setting(name: str, names: Collection[str]) -> str:
    """What to do about a name that none has."""
    alike = get_close_matches(name, names, n=1)
    return f"did you mean {alike[0]}?" if alike else "remove it"


def _of_the_environment(names: Collection[str]) -> Iterator[Said]:
    for variable, text in os.environ.items():
        name = variable.lower().removeprefix(_PREFIX.lower())
        if text and name in names and variable.upper().startswith(_PREFIX):
            yield Said(name, text, variable, variable)


def _of_the_file(names: Collection[str]) -> Iterator[Said | SettingProblem]:
    path = locations.settings_file()
    try:
        lines = locations.settings_lines()
    except SettingsFileError as error:
        yield SettingProblem(str(path), "", error.problem, tuple(names))
        return
    text = path.read_text(encoding="utf-8") if lines else ""
    for name, value in lines.items():
        source = f"{path}{_line_of(name, text)}"
        if name in names:
            yield Said(name, value, path.name, source)
        else:
            words = f"there is no setting {name!a}: {no_setting(name, names)}"
            yield SettingProblem(source, "", words, ())


def _line_of(name: str, text: str) -> str:
    """Where a setting begins, in words; nothing where its name is written in another way."""
    found = re.search(rf"(?m)^[ \t]*\[*{re.escape(name)}\b", text)
    return f", line {text.count(chr(10), 0, found.start()) + 1}" if found else ""


def _of_the_reference(names: Collection[str]) -> Iterator[Said | SettingProblem]:
    for file_name, ours in _REFERENCE.items():
        path = locations.reference_folder() / file_name
        ours = {theirs: name for theirs, name in ours.items() if name in names}  # noqa: PLW2901
        try:
            stored = read_json(path)
        except (OSError, ValueError, RecursionError) as error:
            words = f"{_in_words(error)}; correct the file, remove it, or log in again"
            yield SettingProblem(str(path), "", words, tuple(ours.values()))
            continue
        for theirs, name in ours.items():
            value = stored.get(theirs)
            if value is not None and not isinstance(value, str):
                yield SettingProblem(f"{path}: {theirs}", name, "a text is needed", (name,))
            elif value:
                yield Said(name, value, REFERENCE, f"{path}: {theirs}")


def _in_words(error: Exception) -> str:
    """Without what the file holds: it may be a key."""
    match error:
        case json.JSONDecodeError():
            return f"it cannot be read as JSON (line {error.lineno}: {error.msg})"
        case UnicodeDecodeError():
            return "it is no UTF-8 text"
        case OSError():
            return f"it cannot be read: {error.strerror}"
        case RecursionError():
            return "it is nested too deeply"
        case _:
            return str(error)
