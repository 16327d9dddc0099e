"""Gates: decide from a score and earlier decisions whether a run is forwarded.

Reasons are codes with arguments; they are put into words where they are shown.

A share ranks a run among its domain's last runs by rank key. A credit, the number of runs owed,
widens or narrows the ranked share to keep the share on any stream.
"""

import math
import re
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, Literal, NamedTuple, Protocol

from kp_middleware.core.formula import DEFAULT_THRESHOLD, Score

DAY_S: Final = 24 * 3600

WARM_UP: Final = 10
"""The number of runs of a domain before which the protocol's threshold holds."""

MAX_WINDOW: Final = 500
"""The largest number of a domain's last runs that a gate considers."""

_TOP: Final = re.compile(r"\s*top\s*(\d{1,3}(?:\.\d{1,4})?)\s*(?:%|percent)\s*", re.IGNORECASE)
_MIN_WINDOW: Final = 100
_MIN_CHOSEN: Final = 10  # a window holds at least as many runs of the share, if possible
_BAND: Final = 5.0  # the credit, above or below 0, at which all or no runs are chosen
_MAX_CREDIT: Final = _BAND + 1  # clipping at the band itself would lose credit


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
        decision: Whether to forward the run.
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
        return self.told.code

    @property
    def told(self) -> Reason:
        """The reason as a `Reason`; a text becomes the argument of ``custom``."""
        if isinstance(self.reason, Reason):
            return self.reason
        return Reason(ReasonCode.CUSTOM, {"words": str(self.reason)})


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
        self._size = size
        self._runs: deque[tuple[float, bool]] = deque()
        self._keys: list[float] = []
        self._chosen_keys: list[float] = []

    def __len__(self) -> int:
        """Return the number of runs."""
        return len(self._keys)

    @property
    def chosen_count(self) -> int:
        """The number of these runs that the gate chose."""
        return len(self._chosen_keys)

    def add(self, key: float, *, chosen: bool, credit: float | None = None) -> None:
        """Add the next run, with the credit after it; drop the oldest run if full."""
        if credit is not None:
            self.credit = credit
        if len(self._runs) == self._size:
            oldest, was_chosen = self._runs.popleft()
            for keys in (self._keys, self._chosen_keys) if was_chosen else (self._keys,):
                del keys[bisect_right(keys, oldest) - 1]
        self._runs.append((key, chosen))
        for keys in (self._keys, self._chosen_keys) if chosen else (self._keys,):
            insort(keys, key)

    def runs_ahead(self, key: float) -> int:
        """Return the number of runs with a higher key, or the same key if chosen."""
        higher, chosen = len(self._keys) - bisect_right(self._keys, key), self._chosen_keys
        return higher + bisect_right(chosen, key) - bisect_left(chosen, key)

    def key_at(self, rank: int) -> float:
        """Return the key of the run at a rank; 1 is the highest key."""
        return self._keys[-rank]


class Choice(NamedTuple):
    """The result of `choose` for one run."""

    is_chosen: bool
    level: float  # the share, adjusted by the credit
    bar: float  # its lowest key; a score if no run is ranked
    credit: float | None  # the runs owed after this run
    is_ranked: bool  # False with a threshold, which decides during the warm-up, too


def choose(share: float, ranking: Ranking, *, key: float, score: float) -> Choice:
    """Choose whether a run is in a share, from 0.01 to 1.

    The credit grows by the share with each run, and falls by 1 with each chosen run; at 5 all runs
    are chosen, at -5 none. After the warm-up the number of chosen runs in any stretch is therefore
    off by fewer than 11, for any keys.
    """
    runs, credit, level = len(ranking), ranking.credit, share
    is_ranked, bar, is_chosen = runs >= WARM_UP, DEFAULT_THRESHOLD, score >= DEFAULT_THRESHOLD
    if is_ranked:
        part = max(-1.0, min(1.0, credit / _BAND))
        square = part * part
        level = share + (1 - share) * square if part >= 0 else share * (1 - square)
        quota = round(level * runs, 6)
        if level >= 1:
            bar, is_chosen = 0.0, True
        elif quota <= 0:
            bar, is_chosen = 1.0, False
        else:
            bar, is_chosen = ranking.key_at(math.ceil(quota)), ranking.runs_ahead(key) < quota
    owed = min(_MAX_CREDIT, max(-_MAX_CREDIT, credit + share - is_chosen))
    return Choice(is_chosen, level, bar, owed, is_ranked)


class GateHistory(Protocol):
    """The decisions before a run, shared by all processes that use the file."""

    rank_key: float
    """The run's rank key, 0 to 1, by which a share ranks it."""

    def ranking(self, gate: str, last: int) -> Ranking:
        """Return the last scored runs of the same domain, and which of them a gate chose.

        Args:
            gate: The gate's `Gate.name`.
            last: The maximum number of runs.
        """

    def forwarded_in_a_day(self) -> int:
        """Return the number of other runs, none private, forwarded in the last 24 hours."""


class Gate(Protocol):
    """A rule that decides which runs to forward. Its name is stored with each decision."""

    @property
    def name(self) -> str:
        """A short description of the rule."""

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
        if self._share is None:
            self._threshold = float(threshold)
            self.name, self.window = f"threshold {exact(self._threshold)}", 0
        else:
            # the window: the last runs of a domain, which it ranks
            self.name, self.window = format_share(self._share), window_size(self._share)
        if max_per_day is not None:
            self.name += f", at most {max_per_day} a day"
        self._max_per_day = max_per_day

    def decide(self, score: Score, history: GateHistory) -> Decision:
        """Forward a run that reaches the threshold or is in the share, within the daily limit."""
        ranking = history.ranking(self.name, self.window) if self.window else _NO_RANKING
        choice = self.choose(score.value, history.rank_key, ranking)
        forwards = choice.is_chosen
        reason = self._reason(choice, score.value, history.rank_key, ranking)
        if forwards and not self.below_limit(history):
            forwards = False
            reason = Reason(ReasonCode.DAILY_LIMIT, {**reason.args, "limit": self._max_per_day})
        chosen = choice.is_chosen and bool(self.window)
        return Decision(
            "forward" if forwards else "withhold", reason, choice.bar, choice.credit, chosen
        )

    def choose(self, score: float, key: float, ranking: Ranking) -> Choice:
        """Choose without a reason and without the daily limit."""
        if self._share is None:
            return Choice(score >= self._threshold, 0.0, self._threshold, None, is_ranked=False)
        return choose(self._share, ranking, key=key, score=score)

    def below_limit(self, history: GateHistory) -> bool:
        """Return True if fewer runs than the limit were forwarded in the last 24 hours."""
        return self._max_per_day is None or history.forwarded_in_a_day() < self._max_per_day

    def _reason(self, choice: Choice, score: float, key: float, ranking: Ranking) -> Reason:
        if not choice.is_ranked:
            args: dict[str, Any] = {"score": score, "threshold": choice.bar}
            code = ReasonCode.ABOVE_THRESHOLD if choice.is_chosen else ReasonCode.BELOW_THRESHOLD
            if self.window:
                args |= {"runs": len(ranking), "needed": WARM_UP}
                code = code if choice.is_chosen else ReasonCode.WARMING_UP
            return Reason(code, args)
        code = ReasonCode.IN_SHARE if choice.is_chosen else ReasonCode.BELOW_SHARE
        if not choice.is_chosen and key >= choice.bar:
            code = ReasonCode.TIED_WITH_SHARE
        args = {
            "key": key,
            "bar": choice.bar,
            "share": self._share,
            "level": choice.level,
            "runs": len(ranking),
            "gone": ranking.chosen_count,
            "credit": ranking.credit,
        }
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


class ScoredRun(NamedTuple):
    """A scored run in a gate's history; ``success`` is None if unknown."""

    domain: str
    score: float
    key: float
    started_ms: int
    decided_ms: int
    is_private: bool
    success: int | None


def replay(runs: Iterable[ScoredRun], gates: Sequence[SettingsGate]) -> Iterator[tuple[int, ...]]:
    """Decide on runs in order of recording; yield the indexes of the gates that forward each."""
    replays = [_Replay(gate) for gate in gates]
    for run in runs:
        yield tuple(index for index, past in enumerate(replays) if past.forwards(run))


class _Replay:
    """The decisions of one gate so far: a `GateHistory` in memory."""

    def __init__(self, gate: SettingsGate) -> None:
        self.rank_key = 0.0
        self._gate = gate
        self._now_ms = 0
        self._rankings: dict[str, Ranking] = {}
        self._forwarded_ms: list[int] = []

    def forwards(self, run: ScoredRun) -> bool:
        """Decide on the next run and add it to the history."""
        self._now_ms = run.decided_ms
        window = self._gate.window
        ranking = self.ranking(run.domain, window) if window else _NO_RANKING
        choice = self._gate.choose(run.score, run.key, ranking)
        if window:
            ranking.add(run.key, chosen=choice.is_chosen, credit=choice.credit)
        forwarded = choice.is_chosen and self._gate.below_limit(self)
        if forwarded and not run.is_private:
            insort(self._forwarded_ms, run.decided_ms)
        return forwarded

    def ranking(self, gate: str, last: int) -> Ranking:
        if (known := self._rankings.get(gate)) is None:  # an empty one is false
            known = self._rankings[gate] = Ranking(last)
        return known

    def forwarded_in_a_day(self) -> int:
        until = bisect_right(self._forwarded_ms, self._now_ms)
        return until - bisect_left(self._forwarded_ms, self._now_ms - DAY_S * 1000)
