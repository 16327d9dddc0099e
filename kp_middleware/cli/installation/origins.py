"""Each setting with its value, where that comes from, and what it does."""

import re
from collections.abc import Collection, Iterator, Mapping
from inspect import getdoc
from pathlib import Path
from typing import Any, Final

import click
from pydantic import ValidationError

from kp_middleware.setting_values import problem_in_words
from kp_middleware.settings import Settings, outside_origins
from kp_middleware.storage import Row
from kp_middleware.views.wording import one_line

_ENTRY: Final = re.compile(r"^    (\w+): (.*(?:\n     +.*)*)", re.MULTILINE)


def settings_with_origins(db: Path | None) -> list[Row]:
    """Each setting: its name, its value as JSON has it, its origin and its description.

    Args:
        db: The file of traces, where it was named on the command line.
    """
    named: dict[str, Any] = {"db": db} if db else {}
    values = Settings.as_far_as_usable(**named).model_dump(mode="json")
    origins, told = outside_origins() | dict.fromkeys(named, "--db"), descriptions()
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
        click.ClickException: If one is wrong, or anything else that is set.
    """
    problems = settings_problems(but=keywords)
    if problems:
        raise click.ClickException("; ".join(problems))
    return typed_settings(keywords)


def typed_settings(keywords: Mapping[str, Any]) -> Settings:
    """The settings with these keywords, whatever else is wrong.

    Raises:
        click.ClickException: If one of the keywords is wrong.
    """
    try:
        return Settings.as_far_as_usable(**keywords)
    except ValidationError as error:
        raise click.ClickException("; ".join(_wrong(error))) from error


def settings_problems(*, but: Collection[str] = ()) -> list[str]:
    """What is wrong with settings that were not typed: each in one line, with its source.

    Args:
        but: Settings that do not matter, because they were typed.
    """
    problems = Settings.as_far_as_usable().problems
    return [one_line(str(problem)) for problem in problems if problem.name not in but]


def descriptions() -> dict[str, str]:
    """What each setting does, as the docstring of `Settings` says."""
    entries = _ENTRY.findall(getdoc(Settings) or "")
    words = {name: " ".join(text.replace("``", "").split()) for name, text in entries}
    return {name: words.get(name, "") for name in Settings.model_fields}


def variable_of(name: str) -> str | None:
    """The variable that sets it in this environment, if one does."""
    origin = outside_origins().get(name, "")
    return origin if origin.upper() == f"KP_{name.upper()}" else None


def _wrong(error: ValidationError) -> Iterator[str]:
    for one in error.errors(include_input=False, include_url=False):
        yield f"{problem_in_words(one['loc'], one['msg'])} (from what was typed)"
