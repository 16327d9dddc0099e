"""How many rows, as an option."""

from collections.abc import Callable
from typing import Any, Final

import click

_MOST: Final = 2**63 - 1  # SQLite has no larger number


def limit_option(
    default: int | None = 20, *, least: int = 1, told: str = "How many."
) -> Callable[[Any], Any]:
    """Without a default, a command gets None where nothing was typed."""
    return click.option(
        "-n",
        "--limit",
        type=click.IntRange(min=least),
        default=default,
        show_default=default is not None,
        callback=lambda _, __, number: None if number is None else min(number, _MOST),
        help=told,
    )
