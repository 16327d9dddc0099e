"""What a threshold may be, completed while it is typed."""

from typing import Final

import click
from click.shell_completion import CompletionItem

from kp_middleware.core.formula import DEFAULT_THRESHOLD

_OFFERED: Final = {  # without a blank, at which bash would divide it
    "top10%": "the best tenth of each domain",
    "top5%": "the best twentieth of each domain",
    "top20%": "the best fifth of each domain",
    f"{DEFAULT_THRESHOLD:g}": "as the protocol specifies",
}


def complete_threshold(_: click.Context, __: click.Parameter, start: str) -> list[CompletionItem]:
    """Shares, and the protocol's own threshold."""
    typed = start.replace(" ", "")
    return [
        CompletionItem(name, help=words)
        for name, words in _OFFERED.items()
        if name.startswith(typed)
    ]
