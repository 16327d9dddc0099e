"""Gates: decide from a score and earlier decisions whether a run is forwarded.

Reasons are codes with arguments; they are put into words where they are shown.

A share ranks a run among its domain's last runs by rank key. A credit, the number of runs owed,
widens or narrows the ranked share to keep the share on any stream.
"""

import math
import re
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from itertools import chain, compress, repeat
from typing import Any, Final, Literal, NamedTuple, Protocol

from kp_middleware.core.formula import DEFAULT_THRESHOLD, Score

__all__ = ["DAY_S", "OLDER", "WARM_UP", "Decision", "Gate", "GateHistory", "Ranking", "Reason",
           "ReasonCode", "ScoredRuns", "SettingsGate", "choose", "exact", "format_share",
           "parse_share", "replay", "window_size"]  # fmt: skip

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
_FULL: Final = 1 - 1e-9  # of the band: sums of credit have rounding errors


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


def choose(
    share: float, credit: float, runs: int, ahead: int, score: float
) -> tuple[bool, float, float, int]:
    """Choose whether a run is in a share, from 0.01 to 1, with ``ahead`` of ``runs`` before it.

    The credit grows by the share with each run, and falls by 1 with each chosen run; at 5 all runs
    are chosen, at -5 none. After the warm-up the number of chosen runs in any stretch is therefore
    off by fewer than 11, for any keys.

    Returns:
        Whether it is chosen; the credit after it; the share, adjusted by the credit, and the rank
        of the last run in it. A named tuple takes twice as long.
    """
    level, last, is_chosen = share, 0, score >= DEFAULT_THRESHOLD
    if runs >= WARM_UP:
        part = credit / _BAND
        square = part * part if abs(part) < _FULL else 1.0
        level = share + (1 - share) * square if part >= 0 else share * (1 - square)
        last = math.ceil(level * runs - 5e-7)  # of a run: 0.07 * 100 is more than 7
        is_chosen = level >= 1 or ahead < last
    owed = credit + share - is_chosen
    if abs(owed) > _BAND:  # only a warm-up exceeds these bounds
        owed = min(max(owed, share - 1 - _BAND), share + _BAND)
    return is_chosen, owed, level, last


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
        self._threshold = DEFAULT_THRESHOLD  # also while a share warms up
        if self._share is None:
            self._threshold = float(threshold)
            self.name, self.window = f"threshold {exact(self._threshold)}", 0
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
        value, credit = score.value, None
        is_chosen, bar = value >= self._threshold, self._threshold
        if self._share is None:
            reason = self._reason_by_score(value, is_chosen=is_chosen)
        else:
            ranking, key = history.ranking(self.name, self.window), history.rank_key
            runs, ahead = len(ranking), ranking.runs_ahead(key)
            is_chosen, credit, level, last = choose(self._share, ranking.credit, runs, ahead, value)
            if runs < WARM_UP:
                reason = self._reason_by_score(value, is_chosen=is_chosen, runs=runs)
            else:
                bar = 0.0 if level >= 1 else ranking.keys[-last] if last > 0 else 1.0
                code = ReasonCode.IN_SHARE if is_chosen else ReasonCode.BELOW_SHARE
                if not is_chosen and key >= bar:
                    code = ReasonCode.TIED_WITH_SHARE
                args = {"key": key, "bar": bar, "share": self._share, "level": level, "runs": runs}
                args |= {"gone": ranking.chosen_count, "credit": ranking.credit}
                reason = Reason(code, args)
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
        return len(scores) - bisect_left(scores, self._threshold)

    def chosen(self, runs: "ScoredRuns") -> list[bool]:
        """Return whether each run is chosen, without the daily limit."""
        if self._share is None:
            return [score >= self._threshold for score in runs.scores]
        credit, went, gone = 0.0, list[bool](), deque[int]()
        counts = chain(range(self.window), repeat(self.window))
        ranked = zip(runs.ranks(self.window), runs.scores, counts, strict=False)
        for rank, score, count in ranked:
            ahead = rank
            if rank < 0:  # tied: behind the chosen ones
                place = len(went)
                while gone and gone[0] < place - count:
                    gone.popleft()
                ahead = ~rank + sum(runs.keys[other] == runs.keys[place] for other in gone)
            is_chosen, credit, _, _ = choose(self._share, credit, count, ahead, score)
            if is_chosen:
                gone.append(len(went))
            went.append(is_chosen)
        return went

    def below_limit(self, forwarded_in_a_day: Callable[[], int]) -> bool:
        """Return True if fewer runs than the limit were forwarded in the last 24 hours."""
        return self._max_per_day is None or forwarded_in_a_day() < self._max_per_day

    def _reason_by_score(self, score: float, *, is_chosen: bool, runs: int | None = None) -> Reason:
        args: dict[str, Any] = {"score": score, "threshold": self._threshold}
        code = ReasonCode.ABOVE_THRESHOLD if is_chosen else ReasonCode.BELOW_THRESHOLD
        if runs is not None:
            args |= {"runs": runs, "needed": WARM_UP}
            code = code if is_chosen else ReasonCode.WARMING_UP
        return Reason(code, args)


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


OLDER: Final = 8
"""Added to the kind of a run that takes part in decisions, but is not counted."""


@dataclass(slots=True)
class ScoredRuns:
    """The scored runs of one domain in recording order, as columns, for speed."""

    scores: Sequence[float]
    keys: Sequence[float]
    kinds: Sequence[int]  # 1 if private, plus 0 if failed, 2 if succeeded, 4 if not known; `OLDER`
    seqs: Sequence[int] = ()  # like the next, for a daily limit only
    decided_at: Sequence[str] = ()
    _ranks: dict[int, list[int]] = field(default_factory=dict, init=False)

    def ranks(self, size: int) -> list[int]:
        """Return how many of the ``size`` runs before each have a higher key; ``~`` it if tied."""
        if size not in self._ranks:
            ranks, oldest, window = self._ranks.setdefault(size, []), iter(self.keys), list[float]()
            for key in self.keys:
                place = bisect_right(window, key)
                ahead = len(window) - place
                ranks.append(~ahead if place and window[place - 1] == key else ahead)
                window.insert(place, key)
                if len(window) > size:
                    del window[bisect_left(window, next(oldest))]
        return self._ranks[size]


def replay(domains: Mapping[str, ScoredRuns], gate: SettingsGate) -> dict[str, list[bool]]:
    """Return whether a gate forwards each of these runs, by domain."""
    went = {name: gate.chosen(runs) for name, runs in domains.items()}
    if gate.is_limited:
        forwarded = list[datetime]()
        places = (
            (runs.seqs[place], name, place)
            for name, runs in domains.items()
            for place in compress(range(len(runs.scores)), went[name])
        )
        for _, name, place in sorted(places):
            at = datetime.fromisoformat(domains[name].decided_at[place])
            went[name][place] = gate.below_limit(partial(_in_a_day, forwarded, at))
            if went[name][place] and not domains[name].kinds[place] & 1:
                insort(forwarded, at)
    return went


def _in_a_day(forwarded: list[datetime], until: datetime) -> int:
    since = bisect_left(forwarded, until - timedelta(seconds=DAY_S))
    return bisect_right(forwarded, until) - since
