"""Each setting with its value, where that comes from, and what it does."""

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from inspect import getdoc
from pathlib import Path
from typing import Any, Final

import click
from pydantic import ValidationError
from pydantic_settings import (
    DotEnvSettingsSource,
    EnvSettingsSource,
    InitSettingsSource,
    SecretsSettingsSource,
)

from kp_middleware import locations
from kp_middleware.inspection.output.wording import one_line
from kp_middleware.settings import Settings
from kp_middleware.storage import Row

_ENTRY: Final = re.compile(r"^    (\w+): (.*(?:\n     +.*)*)", re.MULTILINE)


def settings_with_origins(db: Path | None) -> list[Row]:
    """Each setting: its name, its value as JSON has it, its origin and its description.

    Args:
        db: The file of traces, where it was named on the command line.

    Raises:
        click.ClickException: If one is wrong; says where that comes from.
        SettingsFileError: If ``settings.toml`` cannot be read.
    """
    named = {"db": db} if db else {}
    values = checked_settings(named).model_dump(mode="json")
    origins, told = _origins() | dict.fromkeys(named, "--db"), descriptions()
    return [
        {
            "setting": name,
            "value": value,
            "origin": origins.get(name, "default"),
            "description": told[name],
        }
        for name, value in values.items()
    ]


def checked_settings(keywords: Mapping[str, Any]) -> Settings:
    """The settings with these keywords; what is wrong, in words and with its origin.

    Raises:
        click.ClickException: If one is wrong.
        SettingsFileError: If ``settings.toml`` cannot be read.
    """
    try:
        return Settings(**keywords)
    except ValidationError as error:
        origins = _origins() | dict.fromkeys(keywords, "what was typed")
        raise click.ClickException("; ".join(_wrong(error, origins))) from error
    except ValueError as error:  # a variable that is not JSON
        raise click.ClickException(str(error)) from error


def descriptions() -> dict[str, str]:
    """What each setting does, as the docstring of `Settings` says."""
    entries = _ENTRY.findall(getdoc(Settings) or "")
    words = {name: " ".join(text.replace("``", "").split()) for name, text in entries}
    return {name: words.get(name, "") for name in Settings.model_fields}


def variable_of(name: str) -> str | None:
    """The variable that sets it in this environment, if one does."""
    return f"KP_{name.upper()}" if name in EnvSettingsSource(Settings)() else None


def unknown_lines() -> Iterator[str]:
    """What ``settings.toml`` says and nobody reads, each with the setting that may be meant."""
    for name in locations.settings_lines():
        if name not in Settings.model_fields:
            alike = get_close_matches(name, Settings.model_fields, n=1)
            remedy = f"did you mean {alike[0]}?" if alike else "remove it"
            yield f"there is no setting {one_line(name)}: {remedy}"


def _origins() -> dict[str, str]:
    """Of all that are set somewhere: the nearest place last, because it wins."""
    _, variables, _, reference = Settings.settings_customise_sources(
        Settings,
        InitSettingsSource(Settings, {}),
        EnvSettingsSource(Settings),
        DotEnvSettingsSource(Settings),
        SecretsSettingsSource(Settings),
    )
    return {
        **dict.fromkeys(reference(), "reference files"),
        **dict.fromkeys(locations.settings_lines(), "settings.toml"),
        **{name: f"KP_{name.upper()}" for name in variables()},
    }


def _wrong(error: ValidationError, origins: Mapping[str, str]) -> Iterator[str]:
    for one in error.errors(include_input=False, include_url=False):
        name = str(one["loc"][0])
        problem = one["msg"].removeprefix("Value error, ")
        yield f"{name}: {problem} (from {origins.get(name, 'default')})"
