"""How many rows, as an option."""

from typing import Final

import click

_MOST: Final = 2**63 - 1  # SQLite has no larger number

limit_option = click.option(
    "-n",
    "--limit",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    callback=lambda _, __, number: min(number, _MOST),
    help="How many.",
)
