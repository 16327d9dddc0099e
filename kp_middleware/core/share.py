"""A share of a domain's runs: which of them go, so that as many go as were asked for.

A run is ranked among the last ones by its rank key. A credit, the number of runs that are owed,
makes the ranked share larger or smaller, so that the share holds on any stream of runs.
"""

import math
from bisect import bisect_right, insort
from collections import deque
from typing import Final, NamedTuple

from kp_middleware.core.formula import DEFAULT_THRESHOLD, Signals, Weights

WARM_UP: Final = 10
"""The number of runs of a domain before which the protocol's threshold holds."""

MOST_RUNS: Final = 500
"""The largest number of a domain's last runs that a gate considers."""

_FEWEST_RUNS: Final = 100
_BEST: Final = 10  # so many of the considered runs are in the share, if there are enough
_BAND: Final = 5.0  # runs owed, or in debt, at which all or none go
_CREDIT: Final = _BAND + 1  # one beyond the band, or debts are forgotten
_UNKNOWN: Final = 0.5
_UNSAID_CONFIDENCE: Final = 0.8
_LEAST: Final = 0.01


def rank_key(
    signals: Signals,
    weights: Weights,
    *,
    single_tool: bool,
    p_success: float | None,
    confidence: float | None,
) -> float:
    """Return the key, 0 to 1, by which a share ranks a run: P² · calm.

    Calm is the score with complexity reversed, and no reward for recoveries: struggling is no
    merit here. A probability or a confidence of None: nothing is known, or was said.
    """
    calm = (
        -weights.complexity * signals.complexity
        + weights.novelty * signals.novelty
        + weights.tool_diversity * signals.tool_diversity
        + weights.outcome_confidence * (_UNSAID_CONFIDENCE if confidence is None else confidence)
        - (0.1 if single_tool else 0.0)
    )
    p = _UNKNOWN if p_success is None else p_success
    return p * p * min(1.0, max(_LEAST, calm))


def considered(share: float) -> int:
    """Return how many of a domain's last runs a share is taken of.

    >>> considered(0.2), considered(0.04), considered(0.01)
    (100, 250, 500)
    """
    return min(MOST_RUNS, max(_FEWEST_RUNS, math.ceil(round(_BEST / share, 6))))


class Ranking:
    """The last runs of a domain before a run, by rank key, and what one gate chose of them.

    Args:
        last: How many are kept at most.

    Attributes:
        credit: How many runs the gate owes; below 0, how many it let through too many.
        gone: How many of these runs it chose.
    """

    def __init__(self, last: int) -> None:
        self.credit = 0.0
        self.gone = 0
        self._most = last
        self._runs: deque[tuple[float, bool]] = deque()
        self._keys: list[float] = []
        self._gone_by_key: dict[float, int] = {}

    def __len__(self) -> int:
        """Return how many runs it holds."""
        return len(self._keys)

    def add(self, key: float, *, gone: bool, credit: float | None = None) -> None:
        """Add the next run, with the credit after it, and drop the oldest beyond the most."""
        if credit is not None:
            self.credit = credit
        if len(self._runs) == self._most:
            self._drop(*self._runs.popleft())
        self._runs.append((key, gone))
        insort(self._keys, key)
        if gone:
            self.gone += 1
            self._gone_by_key[key] = self._gone_by_key.get(key, 0) + 1

    def ahead(self, key: float) -> int:
        """Return how many runs have a higher key, or the same key and were chosen."""
        higher = len(self._keys) - bisect_right(self._keys, key)
        return higher + self._gone_by_key.get(key, 0)

    def best(self, number: int) -> float:
        """Return the key of the run that has this place by key, from 1."""
        return self._keys[-number]

    def _drop(self, key: float, gone: bool) -> None:  # noqa: FBT001 - as it was kept
        del self._keys[bisect_right(self._keys, key) - 1]
        if gone:
            self.gone -= 1
            self._gone_by_key[key] -= 1
            if not self._gone_by_key[key]:
                del self._gone_by_key[key]


class Choice(NamedTuple):
    """The place of a run in a share.

    ``level`` is the share of the last runs that may go now, ``bar`` its lowest key, ``credit`` what
    is owed after this run. In the warm-up, when none is ranked, the threshold decides.
    """

    goes: bool
    level: float
    bar: float
    credit: float
    is_ranked: bool


def choose(share: float, ranking: Ranking, *, key: float, score: float) -> Choice:
    """Choose whether a run is in a share, from 0.01 to 1.

    With the credit kept from run to run, from the end of the warm-up on fewer than 11 runs too
    many or too few go in any stretch, for any keys.
    """
    runs, credit = len(ranking), ranking.credit
    if runs < WARM_UP:
        goes = score >= DEFAULT_THRESHOLD
        booking = booked(credit, share, goes=goes)
        return Choice(goes, share, DEFAULT_THRESHOLD, booking, is_ranked=False)
    level = level_at(credit, share)
    room = round(level * runs, 6)
    if level >= 1:
        bar, goes = 0.0, True
    elif room <= 0:
        bar, goes = 1.0, False
    else:
        bar, goes = ranking.best(math.ceil(room)), ranking.ahead(key) < room
    return Choice(goes, level, bar, booked(credit, share, goes=goes), is_ranked=True)


def level_at(credit: float, share: float) -> float:
    """Return the share of the last runs that may go now: 1 at a credit of 5, 0 at -5.

    >>> [round(level_at(credit, 0.2), 2) for credit in (-5, -1, 0, 1, 3, 5)]
    [0.0, 0.19, 0.2, 0.23, 0.49, 1.0]
    """
    part = max(-1.0, min(1.0, credit / _BAND))
    square = part * part
    return share + (1 - share) * square if part >= 0 else share * (1 - square)


def booked(credit: float, share: float, *, goes: bool) -> float:
    """Return the credit after a run: a share of a run more is owed, one less if it went."""
    return min(_CREDIT, max(-_CREDIT, credit + share - goes))
