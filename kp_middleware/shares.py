"""What a threshold may be, in words: a share of all runs, ``top 10%``, or a score."""

import math
import re
from typing import Final

_TOP: Final = re.compile(r"\s*top\s*(\d{1,3}(?:\.\d{1,4})?)\s*(?:%|percent)\s*", re.IGNORECASE)
_FEWEST: Final = 50  # runs of which a share can be told


UNTIL_TOLD: Final = "which holds until the domain has"
"""A part of the reason as long as a share cannot be told: ``traces.verdict`` knows it by this."""


def exact(threshold: float) -> str:
    """A score that is asked for, with as few digits as say it exactly.

    >>> exact(0.7), exact(0.7500004), exact(1)
    ('0.7', '0.7500004', '1')
    """
    short = f"{threshold:g}"
    return short if float(short) == threshold else repr(float(threshold))


def top_share(words: str) -> float | None:
    """The share that is meant, from 0.01 to 1; None where the words mean no such share.

    >>> top_share("top 10%"), top_share("Top 2.5 %"), top_share("0.75"), top_share("top 0%")
    (0.1, 0.025, None, None)
    """
    found = _TOP.fullmatch(words)
    share = 0.0 if found is None else float(found[1]) / 100
    return share if 0.01 <= share <= 1 else None


def share_in_words(share: float) -> str:
    """The words that mean a share, always the same.

    >>> share_in_words(0.1)
    'top 10%'
    """
    return f"top {share * 100:g}%"


def fewest_runs(share: float) -> int:
    """Of how many runs a share can be told; until a domain has them, `SPECIFIED_THRESHOLD` holds.

    >>> fewest_runs(0.1), fewest_runs(0.01)
    (50, 100)
    """
    return max(_FEWEST, math.ceil(1 / share))
