"""A moment in the past, as people type it."""

import re
import time
from datetime import UTC, datetime
from typing import Final

import click

from kp_middleware.instants import instant

_AGE: Final = re.compile(r"(\d+(?:\.\d+)?)([mhdw])")
_UNITS_S: Final = {"m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def _instant(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    """The instant as columns have it. Dates are in UTC unless they say otherwise."""
    if value is None:
        return None
    age = _AGE.fullmatch(value)
    try:
        if age:
            return instant(time.time() - float(age[1]) * _UNITS_S[age[2]])
        moment = datetime.fromisoformat(value)
        return instant(moment.replace(tzinfo=moment.tzinfo or UTC).timestamp())
    except (ValueError, OverflowError, OSError) as error:
        told = f"{value!r} is no date (2026-11-01) and no age (36h, 7d, 2w)"
        raise click.BadParameter(told) from error


since_option = click.option(
    "--since",
    metavar="DATE|AGE",
    callback=_instant,
    help="Only what started then or later: 2026-11-01, 36h, 7d, 2w.",
)
"""The command gets an instant, or None for all times."""
