"""One colour for each thing, everywhere. Red is kept for the threshold and for what is lost."""

from collections.abc import Iterable, Mapping
from itertools import zip_longest
from typing import Final

SIGNALS: Final[Mapping[str, str]] = {
    "complexity": "blue",
    "novelty": "orange",
    "tool_diversity": "green",
    "outcome_confidence": "purple",
}
"""The colour of each part of the score."""

BELOW: Final = "below"
CLEARED: Final = "cleared"
LOSS: Final = "loss"
PLAIN: Final = "plain"

COLOURS: Final = ("blue", "orange", "green", "purple", "cyan", "olive", "brown")
"""For kinds that have no order; told apart also without seeing red or green."""

OTHER: Final = "grey"

_KNOWN: Final = ("code", "customer_service", "finance", "general", "medical")


def colours_of(domains: Iterable[str]) -> Mapping[str, str]:
    """The colour of each domain: the protocol's own have theirs always, others what is left.

    >>> colours_of(["law", "code"])
    {'code': 'blue', 'law': 'olive'}
    """
    names = set(domains)
    own = sorted(names - set(_KNOWN))
    theirs = dict(zip(_KNOWN, COLOURS, strict=False))
    left = [*COLOURS[len(_KNOWN) :], *(theirs[name] for name in _KNOWN if name not in names)]
    known = {name: colour for name, colour in theirs.items() if name in names}
    return known | dict(zip_longest(own, left[: len(own)], fillvalue=OTHER))
