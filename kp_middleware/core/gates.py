"""Gates: decide from a score and earlier decisions whether a run is forwarded.

Reasons are codes with arguments; they are put into words where they are shown.

A share ranks a run among the last ones of its domain by its rank key. A credit, the number of runs
that are owed, makes the ranked share larger or smaller, so that the share holds on any stream.
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

MOST_RUNS: Final = 500
"""The largest number of a domain's last runs that a gate considers."""

_TOP: Final = re.compile(r"\s*top\s*(\d{1,3}(?:\.\d{1,4})?)\s*(?:%|percent)\s*", re.IGNORECASE)
_FEWEST_RUNS: Final = 100
_BEST: Final = 10  # so many of the considered runs are in the share, if there are enough
_BAND: Final = 5.0  # runs owed, or in debt, at which all or none go
_CREDIT: Final = _BAND + 1  # one beyond the band, or debts are forgotten


class ReasonCode(StrEnum):
    """The kind of reason for a decision, with the arguments that come with it."""

    ABOVE_THRESHOLD = "above_threshold"
    """``score``, ``threshold``; while a share warms up also ``runs`` and ``needed``."""
    BELOW_THRESHOLD = "below_threshold"
    """``score``, ``threshold``."""
    WARMING_UP = "warming_up"
    """Below the threshold that holds in a domain's first runs: those and ``runs``, ``needed``."""
    IN_SHARE = "in_share"
    """``key`` and ``bar``, the rank keys of the run and of the last one in the share; ``share``
    as asked for and ``level`` as it is now; ``runs``, the number of last runs, and ``gone``, how
    many of them were chosen; ``credit`` before this run."""
    BELOW_SHARE = "below_share"
    """The same."""
    TIED_WITH_SHARE = "tied_with_share"
    """The same: as good as the last of the share, which has been used up."""
    DAILY_LIMIT = "daily_limit"
    """``limit``, and the arguments of the gate that would have let it through."""
    GATE_FAILED = "gate_failed"
    """``error``: the name of the exception."""
    CUSTOM = "custom"
    """``words``: those of the user's own gate."""


class Reason(NamedTuple):
    """The reason for a gate's decision.

    Attributes:
        code: The kind of reason.
        args: Its arguments, as `ReasonCode` lists them; JSON.
    """

    code: ReasonCode
    args: Mapping[str, Any]


class Decision(NamedTuple):
    """A gate's decision on one run.

    Attributes:
        decision: Whether the run may leave.
        reason: Why: in words of your own, or a `Reason`.
        threshold: What was asked for this time, 0 to 1: of the score, or of the rank key where a
            share ranked it.
        credit: How many runs a share owes after this one; None of other gates.
        chosen: Whether the share chose the run, also where a daily limit holds it back.
    """

    decision: Literal["forward", "withhold"]
    reason: str | Reason
    threshold: float
    credit: float | None = None
    chosen: bool = False

    @property
    def reason_code(self) -> ReasonCode:
        """The kind of reason; ``custom`` for words."""
        return self.told.code

    @property
    def told(self) -> Reason:
        """The reason, with words as the argument of ``custom``."""
        if isinstance(self.reason, Reason):
            return self.reason
        return Reason(ReasonCode.CUSTOM, {"words": str(self.reason)})


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
    """

    def __init__(self, last: int) -> None:
        self.credit = 0.0
        self._most = last
        self._runs: deque[tuple[float, bool]] = deque()
        self._keys: list[float] = []
        self._gone_keys: list[float] = []

    def __len__(self) -> int:
        """Return how many runs it holds."""
        return len(self._keys)

    @property
    def gone(self) -> int:
        """The number of these runs that the gate chose."""
        return len(self._gone_keys)

    def add(self, key: float, *, gone: bool, credit: float | None = None) -> None:
        """Add the next run, with the credit after it, and drop the oldest beyond the most."""
        if credit is not None:
            self.credit = credit
        if len(self._runs) == self._most:
            oldest, had_gone = self._runs.popleft()
            for keys in (self._keys, self._gone_keys) if had_gone else (self._keys,):
                del keys[bisect_right(keys, oldest) - 1]
        self._runs.append((key, gone))
        for keys in (self._keys, self._gone_keys) if gone else (self._keys,):
            insort(keys, key)

    def ahead(self, key: float) -> int:
        """Return how many runs have a higher key, or the same key and were chosen."""
        higher, gone = len(self._keys) - bisect_right(self._keys, key), self._gone_keys
        return higher + bisect_right(gone, key) - bisect_left(gone, key)

    def best(self, number: int) -> float:
        """Return the key of the run that has this place by key, from 1."""
        return self._keys[-number]


class Choice(NamedTuple):
    """The place of a run in a share.

    ``level`` is the share of the last runs that may go now, ``bar`` its lowest key, ``credit`` what
    is owed after this run. In the warm-up, when none is ranked, the threshold decides.
    """

    goes: bool
    level: float
    bar: float
    credit: float | None
    is_ranked: bool


def choose(share: float, ranking: Ranking, *, key: float, score: float) -> Choice:
    """Choose whether a run is in a share, from 0.01 to 1.

    With the credit kept from run to run, from the end of the warm-up on fewer than 11 runs too
    many or too few go in any stretch, for any keys. A share of a run more is owed after each run,
    one less if it went; at a credit of 5 all go, at -5 none.
    """
    runs, credit, level = len(ranking), ranking.credit, share
    is_ranked, bar, goes = runs >= WARM_UP, DEFAULT_THRESHOLD, score >= DEFAULT_THRESHOLD
    if is_ranked:
        part = max(-1.0, min(1.0, credit / _BAND))
        square = part * part
        level = share + (1 - share) * square if part >= 0 else share * (1 - square)
        room = round(level * runs, 6)
        if level >= 1:
            bar, goes = 0.0, True
        elif room <= 0:
            bar, goes = 1.0, False
        else:
            bar, goes = ranking.best(math.ceil(room)), ranking.ahead(key) < room
    owed = min(_CREDIT, max(-_CREDIT, credit + share - goes))
    return Choice(goes, level, bar, owed, is_ranked)


class GateHistory(Protocol):
    """The decisions before a run, the same for every process on the file."""

    rank_key: float
    """The run's own rank key, 0 to 1: what a share ranks it by."""

    def ranking(self, gate: str, last: int) -> Ranking:
        """Return the last scored runs of the same domain, and what the gate of this name chose.

        Args:
            gate: Its name, with its setting.
            last: How many runs at most.
        """

    def forwarded_in_a_day(self) -> int:
        """Return the number of other runs forwarded in the last 24 hours that may leave."""


class Gate(Protocol):
    """A rule that decides which runs to forward. Its name is stored with each decision."""

    @property
    def name(self) -> str:
        """The gate's rule in a few words."""

    def decide(self, score: Score, history: GateHistory) -> Decision:
        """Decide whether to forward a run."""


class SettingsGate:
    """The gate of the settings: a threshold, or a share of each domain's runs; so many a day.

    A share, ``top 1%`` to ``top 100%``, is of the best by their rank keys, of those with the same
    key the first. The protocol's own threshold holds until the domain has 10 runs.

    >>> SettingsGate(0.75).name, SettingsGate("top 10%", 20).name
    ('threshold 0.75', 'top 10%, at most 20 a day')

    Attributes:
        last: How many runs of a domain it ranks; 0 with a threshold.
    """

    def __init__(self, threshold: float | str, max_per_day: int | None = None) -> None:
        self._share = top_share(threshold) if isinstance(threshold, str) else None
        if self._share is None:
            self._threshold = float(threshold)
            self.name, self.last = f"threshold {exact(self._threshold)}", 0
        else:
            self.name, self.last = share_in_words(self._share), considered(self._share)
        if max_per_day is not None:
            self.name += f", at most {max_per_day} a day"
        self._most = max_per_day

    def decide(self, score: Score, history: GateHistory) -> Decision:
        """Forward what reaches the threshold or is in the share, while the day has room."""
        ranking = history.ranking(self.name, self.last) if self.last else _NO_RUNS
        choice = self.choose(score.value, history.rank_key, ranking)
        goes, reason = choice.goes, self._reason(choice, score.value, history.rank_key, ranking)
        if goes and not self.has_room(history):
            goes = False
            reason = Reason(ReasonCode.DAILY_LIMIT, {**reason.args, "limit": self._most})
        chosen = choice.goes and bool(self.last)
        return Decision(
            "forward" if goes else "withhold", reason, choice.bar, choice.credit, chosen
        )

    def choose(self, score: float, key: float, ranking: Ranking) -> Choice:
        """Choose without a reason, whatever went today."""
        if self._share is None:
            return Choice(score >= self._threshold, 0.0, self._threshold, None, is_ranked=False)
        return choose(self._share, ranking, key=key, score=score)

    def has_room(self, history: GateHistory) -> bool:
        """Return whether fewer than the limit were forwarded in the last 24 hours."""
        return self._most is None or history.forwarded_in_a_day() < self._most

    def _reason(self, choice: Choice, score: float, key: float, ranking: Ranking) -> Reason:
        if not choice.is_ranked:
            args: dict[str, Any] = {"score": score, "threshold": choice.bar}
            code = ReasonCode.ABOVE_THRESHOLD if choice.goes else ReasonCode.BELOW_THRESHOLD
            if self.last:
                args |= {"runs": len(ranking), "needed": WARM_UP}
                code = code if choice.goes else ReasonCode.WARMING_UP
            return Reason(code, args)
        code = ReasonCode.IN_SHARE if choice.goes else ReasonCode.BELOW_SHARE
        if not choice.goes and key >= choice.bar:
            code = ReasonCode.TIED_WITH_SHARE
        args = {
            "key": key,
            "bar": choice.bar,
            "share": self._share,
            "level": choice.level,
            "runs": len(ranking),
            "gone": ranking.gone,
            "credit": ranking.credit,
        }
        return Reason(code, args)


_NO_RUNS: Final = Ranking(0)


def exact(threshold: float) -> str:
    """Format a threshold with as few digits as represent it exactly.

    >>> exact(0.7), exact(0.7500004), exact(1)
    ('0.7', '0.7500004', '1')
    """
    short = f"{threshold:g}"
    return short if float(short) == threshold else repr(float(threshold))


def top_share(words: str) -> float | None:
    """Parse a share such as ``top 10%``, from 0.01 to 1; return None for anything else.

    >>> top_share("top 10%"), top_share("Top 2.5 %"), top_share("0.75"), top_share("top 0%")
    (0.1, 0.025, None, None)
    """
    found = _TOP.fullmatch(words)
    share = 0.0 if found is None else float(found[1]) / 100
    return share if 0.01 <= share <= 1 else None


def share_in_words(share: float) -> str:
    """Format a share, such as ``top 10%``.

    >>> share_in_words(0.1)
    'top 10%'
    """
    return f"top {share * 100:g}%"


class ScoredRun(NamedTuple):
    """A scored run in a gate's history; ``success`` is None where it is not known today."""

    domain: str
    score: float
    key: float
    started_ms: int
    decided_ms: int
    is_private: bool
    success: int | None


def replay(runs: Iterable[ScoredRun], gates: Sequence[SettingsGate]) -> Iterator[tuple[int, ...]]:
    """Decide on runs in the order of recording; yield the numbers of the gates each passes."""
    pasts = [_Past(gate) for gate in gates]
    for run in runs:
        yield tuple(number for number, past in enumerate(pasts) if past.forwards(run))


class _Past:
    """The decisions of one gate so far: a `GateHistory` in memory."""

    def __init__(self, gate: SettingsGate) -> None:
        self.rank_key = 0.0
        self._gate = gate
        self._now_ms = 0
        self._rankings: dict[str, Ranking] = {}
        self._let_through_ms: list[int] = []

    def forwards(self, run: ScoredRun) -> bool:
        """Decide on the next run, and count it."""
        self._now_ms = run.decided_ms
        ranking = self.ranking(run.domain, self._gate.last)
        choice = self._gate.choose(run.score, run.key, ranking)
        if self._gate.last:
            ranking.add(run.key, gone=choice.goes, credit=choice.credit)
        goes = choice.goes and self._gate.has_room(self)
        if goes and not run.is_private:
            insort(self._let_through_ms, run.decided_ms)
        return goes

    def ranking(self, gate: str, last: int) -> Ranking:
        return self._rankings.get(gate) or self._rankings.setdefault(gate, Ranking(last))

    def forwarded_in_a_day(self) -> int:
        until = bisect_right(self._let_through_ms, self._now_ms)
        return until - bisect_left(self._let_through_ms, self._now_ms - DAY_S * 1000)
