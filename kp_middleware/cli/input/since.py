"""A moment in the past, as people type it."""

import re
import time
from datetime import UTC, datetime, timedelta
from typing import Final

import click

from kp_middleware.instants import instant

_AGE: Final = re.compile(r"(\d+(?:\.\d+)?)([smhdwy])")
_DAY_S: Final = 86_400
_UNITS_S: Final = {"s": 1, "m": 60, "h": 3600, "d": _DAY_S, "w": 7 * _DAY_S, "y": 365 * _DAY_S}
_DAYS_AGO: Final = {"today": 0, "yesterday": 1}
_MONTH: Final = re.compile(r"\d{4}-\d{2}")


def _instant(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    """The instant as columns have it. Dates are in UTC unless they say otherwise."""
    if value is None:
        return None
    age = _AGE.fullmatch(value)
    try:
        if age:
            return instant(time.time() - float(age[1]) * _UNITS_S[age[2]])
        moment = _moment(value)
        return instant(moment.replace(tzinfo=moment.tzinfo or UTC).timestamp())
    except (ValueError, OverflowError, OSError) as error:
        dates, ages = "2026-11-01, 2026-11, yesterday", "30s, 5m, 36h, 7d, 1y"
        told = f"{value!r} is no date ({dates}) and no age ({ages})"
        raise click.BadParameter(told) from error


def _moment(value: str) -> datetime:
    """The beginning of a day or a month, or what ISO 8601 says; in UTC unless it says otherwise.

    >>> _moment("2026-11")
    datetime.datetime(2026, 11, 1, 0, 0)
    """
    if value in _DAYS_AGO:
        day = datetime.now(UTC) - timedelta(days=_DAYS_AGO[value])
        return day.replace(hour=0, minute=0, second=0, microsecond=0)
    return datetime.fromisoformat(f"{value}-01" if _MONTH.fullmatch(value) else value)


since_option = click.option(
    "--since",
    metavar="DATE|AGE",
    callback=_instant,
    help="Only what started then or later: 2026-11-01, 2026-11, yesterday; 30s, 5m (minutes), 36h,"
    " 7d, 2w, 1y. Dates are in UTC.",
)
"""The command gets an instant, or None for all times."""

older_option = click.option(
    "--older",
    metavar="DATE|AGE",
    callback=_instant,
    help="Only what started before that: 90d, 1y, 2026-11-01; as --since has them.",
)
"""The same of what was before it."""
