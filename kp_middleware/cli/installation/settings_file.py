"""Write one setting to the user's ``settings.toml``, and leave everything else in it as it is."""

import json
import os
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click

from kp_middleware import locations
from kp_middleware.cli.installation.origins import typed_settings, variable_of

_ELSEWHERE: Final = {
    "api_key": "the API key belongs in no file of ours: put it into KP_API_KEY",
    "profiles": "weights are tables: write [profiles.DOMAIN] into {path}",
}


def write_setting(path: Path, name: str, text: str) -> Any:
    """Check a value as `Settings` does, write it, and return it as JSON has it.

    The file is for the user alone (mode 0600), as is its folder where that is new.

    Raises:
        click.ClickException: If it is wrong, or is not to be set here; the file is as it was.
        SettingsFileError: If the file cannot be read.
    """
    if name in _ELSEWHERE:
        raise click.ClickException(_ELSEWHERE[name].format(path=path))
    value = _checked(name, text)
    locations.settings_lines()  # says why, where it cannot be read
    before = path.read_bytes().decode() if path.exists() else ""
    after = with_setting(before, name, value)
    if tomllib.loads(after) != tomllib.loads(before) | {name: value}:
        raise click.ClickException(f"{name} cannot be changed in {path} as it is: edit the file")
    try:
        _replace(path, after)
    except OSError as error:
        raise click.ClickException(f"{path} cannot be written: {error.strerror}") from error
    return value


def tell_what_wins(name: str) -> None:
    """Say that a variable of this environment hides what the file says, if one does."""
    if variable := variable_of(name):
        click.echo(f"{variable} is set, and wins over the file", err=True)


def with_setting(text: str, name: str, value: Any) -> str:
    r"""The text of a TOML file with one more top-level value, or with another in its place.

    >>> print(with_setting("threshold = 0.7  # for now\n[profiles.law]\n", "threshold", 0.8))
    threshold = 0.8  # for now
    [profiles.law]
    <BLANKLINE>
    >>> print(with_setting("# mine\n[profiles.law]\n", "domain", "code"))
    # mine
    domain = "code"
    [profiles.law]
    <BLANKLINE>
    """
    line, done, rest = f"{name} = {_as_toml(value)}", "", text
    for statement in _statements(text):
        if name in tomllib.loads(statement):
            return done + line + _remark(statement) + rest[len(statement) :]
        done, rest = done + statement, rest[len(statement) :]
    gap = "" if not done or done.endswith("\n") else "\n"
    return f"{done}{gap}{line}\n{rest}"


def _checked(name: str, text: str) -> Any:
    if name == "enabled":
        return _without_the_variable(text)
    return typed_settings({name: text}).model_dump(mode="json")[name]


def _without_the_variable(text: str) -> bool:
    """``KP_ENABLED=false`` wins over any keyword, and must not get into the file so."""
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(bool).validate_python(text)
    except ValidationError as error:
        raise click.ClickException("enabled: type true or false") from error


def _statements(text: str) -> Iterator[str]:
    """Line by line, or as many lines as a value has, up to the first table."""
    statement = ""
    for line in text.splitlines(keepends=True):
        if not statement and line.lstrip().startswith("["):
            return
        statement += line
        if _is_toml(statement):
            yield statement
            statement = ""


def _remark(statement: str) -> str:
    """What follows the value on its last line: blanks, a remark, the line's end."""
    value = tomllib.loads(statement)
    for end in range(len(statement)):
        if statement[end] in " \t#\r\n" and _is_toml(statement[:end], value):
            return statement[end:]
    return "\n"


def _is_toml(text: str, expected: dict[str, Any] | None = None) -> bool:
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return False
    return expected is None or found == expected


def _as_toml(value: Any) -> str:
    """JSON's numbers, booleans, texts and lists are TOML's, too; but for one control character."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _replace(path: Path, text: str) -> None:
    """All of it or nothing; a link stays a link."""
    path = path.resolve()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # mode 0600
    with os.fdopen(descriptor, "wb") as file:
        file.write(text.encode())
    Path(name).replace(path)
