"""Gates: decide from a score and earlier decisions whether a run is forwarded.

Reasons are codes with arguments; they are put into words where they are shown.

A share ranks a run among its domain's last runs by rank key. A credit, the number of runs owed,
widens or narrows the ranked share to keep the share on any stream.
"""

import math
import re
from bisect import bisect_left, bisect_right, insort
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeAlias

from kp_middleware.core.formula import DEFAULT_THRESHOLD, Score

__all__ = ["DAY_S", "WARM_UP", "Decision", "Gate", "GateHistory", "Ranking", "Reason", "ReasonCode",
           "ScoredRun", "SettingsGate", "choose", "exact", "format_share", "parse_share", "replay",
           "window_size"]  # fmt: skip

DAY_S: Final = 24 * 3600

WARM_UP: Final = 10
"""The number of runs of a domain before which the protocol's threshold holds."""

MAX_WINDOW: Final = 500
"""The largest number of a domain's last runs that a gate considers."""

_TOP: Final = re.compile(r"\s*top\s*(\d{1,3}(?:\.\d{1,4})?)\s*(?:%|percent)\s*", re.IGNORECASE)
_NAME: Final = re.compile(
    r"(?:threshold (0(?:\.\d+)?)|(top [1-9]\d?(?:\.\d{1,4})?%|top 100%))(?:, at most (\d+) a day)?"
)
_MIN_WINDOW: Final = 100
_MIN_CHOSEN: Final = 10  # a window holds at least as many runs of the share, if possible
_BAND: Final = 5.0  # the credit, above or below 0, at which all or no runs are chosen
_MAX_CREDIT: Final = _BAND + 1  # clipping at the band itself would lose credit
_ROUNDING: Final = 5e-7  # of a run: 0.07 * 100 is more than 7


class ReasonCode(StrEnum):
    """The kind of reason for a decision, with its arguments."""

    ABOVE_THRESHOLD = "above_threshold"
    """``score``, ``threshold``; while a share warms up also ``runs`` and ``needed``."""
    BELOW_THRESHOLD = "below_threshold"
    """``score``, ``threshold``."""
    WARMING_UP = "warming_up"
    """The same and ``runs``, ``needed``: below the threshold for a domain's first runs."""
    IN_SHARE = "in_share"
    """``key`` and ``bar``, the rank keys of the run and of the last run in the share; ``share``
    as configured and ``level``, adjusted by the credit; ``runs``, the number of ranked runs, and
    ``gone``, how many of them were chosen; ``credit`` before this run."""
    BELOW_SHARE = "below_share"
    """The same."""
    TIED_WITH_SHARE = "tied_with_share"
    """The same: tied with the last run of the share, which is used up."""
    DAILY_LIMIT = "daily_limit"
    """``limit``, and the arguments of the reason without the limit."""
    GATE_FAILED = "gate_failed"
    """``error``: the name of the exception."""
    CUSTOM = "custom"
    """``words``: the text of a custom gate."""


class Reason(NamedTuple):
    """The reason for a gate's decision."""

    code: ReasonCode
    args: Mapping[str, Any]  # as `ReasonCode` lists them; JSON


class Decision(NamedTuple):
    """A gate's decision on one run.

    Attributes:
        decision: ``forward`` or ``withhold``.
        reason: The reason: a text, or a `Reason`.
        threshold: The score required, 0 to 1; the rank key required where a share ranked the run.
        credit: The number of runs that a share owes after this run; None for other gates.
        chosen: Whether the share chose the run, even if a daily limit withholds it.
    """

    decision: Literal["forward", "withhold"]
    reason: str | Reason
    threshold: float
    credit: float | None = None
    chosen: bool = False

    @property
    def reason_code(self) -> ReasonCode:
        """The kind of reason; ``custom`` for a text."""
        return self.structured_reason.code

    @property
    def structured_reason(self) -> Reason:
        """The reason as a `Reason`; a text becomes the argument of ``custom``."""
        if isinstance(self.reason, Reason):
            return self.reason
        words = str(self.reason).encode(errors="replace").decode()  # SQLite refuses lone surrogates
        return Reason(ReasonCode.CUSTOM, {"words": words})


def window_size(share: float) -> int:
    """Return the number of a domain's last runs among which a share ranks a run.

    >>> window_size(0.2), window_size(0.04), window_size(0.01)
    (100, 250, 500)
    """
    return min(MAX_WINDOW, max(_MIN_WINDOW, math.ceil(round(_MIN_CHOSEN / share, 6))))


class Ranking:
    """The last ``size`` runs of a domain by rank key, and which of them one gate chose."""

    def __init__(self, size: int) -> None:
        self.credit = 0.0  # the runs that the gate owes; negative if it chose too many
        self.keys: list[float] = []  # in ascending order
        self._size = size
        self._runs: deque[tuple[float, bool]] = deque()
        self._chosen_keys: deque[float] = deque()

    def __len__(self) -> int:
        """Return the number of runs."""
        return len(self.keys)

    @property
    def chosen_count(self) -> int:
        """The number of these runs that the gate chose."""
        return len(self._chosen_keys)

    def add(self, key: float, *, chosen: bool, credit: float | None = None) -> None:
        """Add the next run, with the credit after it; drop the oldest run if full."""
        keys, runs = self.keys, self._runs
        if credit is not None:
            self.credit = credit
        if len(runs) == self._size:
            oldest, was_chosen = runs.popleft()
            del keys[bisect_right(keys, oldest) - 1]
            if was_chosen:
                self._chosen_keys.popleft()
        runs.append((key, chosen))
        insort(keys, key)
        if chosen:
            self._chosen_keys.append(key)

    def runs_ahead(self, key: float) -> int:
        """Return the number of runs with a higher key, or the same key if chosen."""
        return len(self.keys) - bisect_right(self.keys, key) + self._chosen_keys.count(key)


Choice: TypeAlias = tuple[bool, float, float, float | None, bool]
"""The result of `choose`: whether the run is chosen; the share, adjusted by the credit; its lowest
key, or a score if no run is ranked; the credit after this run; and whether runs are ranked. A named
tuple takes twice as long."""


def choose(share: float, ranking: Ranking, key: float, score: float) -> Choice:
    """Choose whether a run is in a share, from 0.01 to 1.

    The credit grows by the share with each run, and falls by 1 with each chosen run; at 5 all runs
    are chosen, at -5 none. After the warm-up the number of chosen runs in any stretch is therefore
    off by fewer than 11, for any keys.
    """
    runs, credit, level = len(ranking.keys), ranking.credit, share
    is_ranked, bar, is_chosen = runs >= WARM_UP, DEFAULT_THRESHOLD, score >= DEFAULT_THRESHOLD
    if is_ranked:
        part = credit / _BAND
        square = part * part if -1 < part < 1 else 1.0
        level = share + (1 - share) * square if part >= 0 else share * (1 - square)
        last = math.ceil(level * runs - _ROUNDING)  # the rank of the last run in the share
        if level >= 1:
            bar, is_chosen = 0.0, True
        elif last < 1:
            bar, is_chosen = 1.0, False
        else:
            bar = ranking.keys[-last]
            is_chosen = key > bar or (key == bar and ranking.runs_ahead(key) < last)
    owed = credit + share - is_chosen
    if not -_MAX_CREDIT < owed < _MAX_CREDIT:
        owed = math.copysign(_MAX_CREDIT, owed)
    return is_chosen, level, bar, owed, is_ranked


def _compare(threshold: float, _: Ranking, __: float, score: float) -> Choice:
    """Choose as `choose` does, by a fixed threshold of the score."""
    return score >= threshold, 0.0, threshold, None, False


_Chooser: TypeAlias = Callable[[Ranking, float, float], Choice]


class GateHistory(Protocol):
    """The decisions before a run, shared by all processes that use the file."""

    rank_key: float
    """The run's rank key, 0 to 1, by which a share ranks it."""

    def ranking(self, gate: str, last: int) -> Ranking:
        """Return the ``last`` scored runs of the same domain, and which of them a gate chose."""

    def forwarded_in_a_day(self) -> int:
        """Return the number of other runs, none private, forwarded in the last 24 hours."""


class Gate(Protocol):
    """A function that decides which runs to forward. Its name is stored with each decision."""

    @property
    def name(self) -> str:
        """A short description of the gate."""

    def decide(self, score: Score, history: GateHistory) -> Decision:
        """Decide whether to forward a run."""


class SettingsGate:
    """The gate configured by the settings: a threshold or a share, and a daily limit.

    A share, ``top 1%`` to ``top 100%``, forwards the runs of each domain with the highest rank
    keys; of equal keys, the earliest. Until a domain has 10 runs, the protocol's threshold applies.

    >>> SettingsGate(0.75).name, SettingsGate("top 10%", 20).name
    ('threshold 0.75', 'top 10%, at most 20 a day')
    """

    def __init__(self, threshold: float | str, max_per_day: int | None = None) -> None:
        self._share = parse_share(threshold) if isinstance(threshold, str) else None
        # how it chooses whether to forward a run, without the daily limit
        self.choose: _Chooser = partial(choose, self._share or 0.0)
        if self._share is None:
            self.choose = partial(_compare, float(threshold))
            self.name, self.window = f"threshold {exact(float(threshold))}", 0
        else:
            # the window: the last runs of a domain, which it ranks
            self.name, self.window = format_share(self._share), window_size(self._share)
        if max_per_day is not None:
            self.name += f", at most {max_per_day} a day"
        self.is_limited, self._max_per_day = max_per_day is not None, max_per_day

    @classmethod
    def named(cls, name: str) -> "SettingsGate | None":
        """Return the gate of a name; None for a custom gate, or a threshold of 1, a fail-safe."""
        if (found := _NAME.fullmatch(name)) is None:
            return None
        threshold, share, most = found.groups()
        return cls(share or float(threshold), None if most is None else int(most))

    def decide(self, score: Score, history: GateHistory) -> Decision:
        """Forward a run that reaches the threshold or is in the share, within the daily limit."""
        ranking = history.ranking(self.name, self.window) if self.window else _NO_RANKING
        choice = self.choose(ranking, history.rank_key, score.value)
        is_chosen, _, bar, credit, _ = choice
        reason = self._reason(choice, score.value, history.rank_key, ranking)
        if not is_chosen:
            return Decision("withhold", reason, bar, credit)
        if self.below_limit(history.forwarded_in_a_day):
            return Decision("forward", reason, bar, credit, bool(self.window))
        reason = Reason(ReasonCode.DAILY_LIMIT, {**reason.args, "limit": self._max_per_day})
        return Decision("withhold", reason, bar, credit, bool(self.window))

    @property
    def needs_history(self) -> bool:
        """False if the score alone decides."""
        return bool(self.window) or self.is_limited

    def count(self, scores: Sequence[float]) -> int:
        """Count the ascending scores that clear a gate that needs no history."""
        return len(scores) - bisect_left(scores, x=True, key=self._clears)

    def _clears(self, score: float) -> bool:
        return self.choose(_NO_RANKING, score, score)[0]

    def below_limit(self, forwarded_in_a_day: Callable[[], int]) -> bool:
        """Return True if fewer runs than the limit were forwarded in the last 24 hours."""
        return self._max_per_day is None or forwarded_in_a_day() < self._max_per_day

    def _reason(self, choice: Choice, score: float, key: float, ranking: Ranking) -> Reason:
        is_chosen, level, bar, _, is_ranked = choice
        if not is_ranked:
            args: dict[str, Any] = {"score": score, "threshold": bar}
            code = ReasonCode.ABOVE_THRESHOLD if is_chosen else ReasonCode.BELOW_THRESHOLD
            if self.window:
                args |= {"runs": len(ranking), "needed": WARM_UP}
                code = code if is_chosen else ReasonCode.WARMING_UP
            return Reason(code, args)
        code = ReasonCode.IN_SHARE if is_chosen else ReasonCode.BELOW_SHARE
        if not is_chosen and key >= bar:
            code = ReasonCode.TIED_WITH_SHARE
        args = {"key": key, "bar": bar, "share": self._share, "level": level}
        args |= {"runs": len(ranking), "gone": ranking.chosen_count, "credit": ranking.credit}
        return Reason(code, args)


_NO_RANKING: Final = Ranking(0)


def exact(threshold: float) -> str:
    """Format a threshold with as few digits as represent it exactly.

    >>> exact(0.7), exact(0.7500004), exact(1)
    ('0.7', '0.7500004', '1')
    """
    short = f"{threshold:g}"
    return short if float(short) == threshold else repr(float(threshold))


def parse_share(text: str) -> float | None:
    """Parse a share such as ``top 10%``, from 0.01 to 1; return None for anything else.

    >>> parse_share("top 10%"), parse_share("Top 2.5 %"), parse_share("0.75"), parse_share("top 0%")
    (0.1, 0.025, None, None)
    """
    match = _TOP.fullmatch(text)
    share = 0.0 if match is None else float(match[1]) / 100
    return share if 0.01 <= share <= 1 else None


def format_share(share: float) -> str:
    """Format a share, such as ``top 10%``.

    >>> format_share(0.1)
    'top 10%'
    """
    return f"top {share * 100:g}%"


ScoredRun: TypeAlias = tuple[str, float, float, str, str, int, int | None]
"""A scored run in a gate's history, a row as SQLite returns it, for speed: domain, score, rank key,
instants of start and decision, whether it is private, and success, None if unknown."""


def replay(runs: Iterable[ScoredRun], gate: SettingsGate) -> list[bool]:
    """Return whether a gate forwards each of these runs, given in order of recording."""
    rankings = defaultdict[str, Ranking](partial(Ranking, gate.window))
    forwarded, decisions = list[datetime](), list[bool]()
    for domain, score, key, _, decided_at, is_private, _ in runs:
        ranking = rankings[domain]
        forwards, _, _, credit, _ = gate.choose(ranking, key, score)
        if credit is not None:
            ranking.add(key, chosen=forwards, credit=credit)
        if forwards and gate.is_limited:
            at = datetime.fromisoformat(decided_at)
            forwards = gate.below_limit(partial(_in_a_day, forwarded, at))
            if forwards and not is_private:
                insort(forwarded, at)
        decisions.append(forwards)
    return decisions


def _in_a_day(forwarded: list[datetime], until: datetime) -> int:
    since = bisect_left(forwarded, until - timedelta(seconds=DAY_S))
    return bisect_right(forwarded, until) - since
