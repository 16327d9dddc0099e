"""Wrong settings from outside of the program, logged once per process."""

import logging
from typing import Final

from kp_middleware.settings import Settings
from kp_middleware.settings_sources import unknown_variables

logger = logging.getLogger("kp_middleware")

_said: Final[set[str]] = set()


def tell_once(settings: Settings) -> None:
    """Log what is wrong in one line, and variables that nobody reads in another."""
    if wrong := in_words(settings):
        _say(logging.ERROR if settings.problems else logging.WARNING, wrong)
    if unknown := unknown_variables(Settings.model_fields):
        told = "; ".join(f"{name} is no setting: {remedy}" for name, remedy in unknown.items())
        _say(logging.WARNING, told)


def in_words(settings: Settings) -> str | None:
    """Say why nothing is sent, and what to do; None if all is well."""
    if not settings.problems:
        return settings.unused_login and f"nothing is sent: {settings.unused_login}"
    told = "; ".join(map(str, settings.problems))
    return f"runs are recorded, and nothing is sent until this is corrected: {told}"


def _say(level: int, words: str) -> None:
    if words not in _said:
        _said.add(words)
        logger.log(level, "%s", words)
