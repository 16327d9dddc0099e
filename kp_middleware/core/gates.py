"""Gates: decide from a score and earlier decisions whether a run is forwarded.

Reasons are codes with arguments; they are put into words where they are shown.
"""

import re
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeAlias

from kp_middleware.core.formula import Score
from kp_middleware.core.share import WARM_UP, Choice, Ranking, choose, considered

_TOP: Final = re.compile(r"\s*top\s*(\d{1,3}(?:\.\d{1,4})?)\s*(?:%|percent)\s*", re.IGNORECASE)

DAY_S: Final = 24 * 3600


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


class Threshold:
    """A gate that forwards runs with at least a given score.

    >>> Threshold(0.75).name
    'threshold 0.75'
    """

    last = 0  # it needs no ranking

    def __init__(self, threshold: float) -> None:
        self.threshold = threshold
        self.name = f"threshold {exact(threshold)}"

    def decide(self, score: Score, history: GateHistory) -> Decision:  # noqa: ARG002 - any gate's
        """Forward at or above the threshold."""
        args = {"score": score.value, "threshold": self.threshold}
        if score.value >= self.threshold:
            reason = Reason(ReasonCode.ABOVE_THRESHOLD, args)
            return Decision("forward", reason, self.threshold)
        return Decision("withhold", Reason(ReasonCode.BELOW_THRESHOLD, args), self.threshold)

    def choose(self, score: float, key: float, ranking: Ranking) -> Choice:  # noqa: ARG002
        """Choose by score alone, as `decide` does."""
        return Choice(score >= self.threshold, 0.0, self.threshold, 0.0, is_ranked=False)


class TopShare:
    """A gate that forwards the best share (0.01 to 1) of each domain's runs, by their rank keys.

    The protocol's own threshold holds until the domain has 10 runs. Of runs with the same key the
    first ones go. Its credit is found by the name that is ``stored_as``.

    >>> TopShare(0.1).name
    'top 10%'
    """

    def __init__(self, share: float, *, stored_as: str | None = None) -> None:
        self.name = share_in_words(share)
        self._stored_as = stored_as or self.name
        self.last = considered(share)
        self._share = share

    def renamed(self, stored_as: str) -> "TopShare":
        """Return the same gate, whose decisions are stored under another name."""
        return TopShare(self._share, stored_as=stored_as)

    def decide(self, score: Score, history: GateHistory) -> Decision:
        """Forward if the run is in the share."""
        ranking, key = history.ranking(self._stored_as, self.last), history.rank_key
        choice = self.choose(score.value, key, ranking)
        decision: Literal["forward", "withhold"] = "forward" if choice.goes else "withhold"
        reason = self._reason(choice, score.value, key, ranking)
        return Decision(decision, reason, choice.bar, choice.credit, choice.goes)

    def choose(self, score: float, key: float, ranking: Ranking) -> Choice:
        """Choose what is in the share."""
        return choose(self._share, ranking, key=key, score=score)

    def _reason(self, choice: Choice, score: float, key: float, ranking: Ranking) -> Reason:
        runs = len(ranking)
        if not choice.is_ranked:
            code = ReasonCode.ABOVE_THRESHOLD if choice.goes else ReasonCode.WARMING_UP
            args = {"score": score, "threshold": choice.bar, "runs": runs, "needed": WARM_UP}
            return Reason(code, args)
        code = ReasonCode.IN_SHARE if choice.goes else ReasonCode.BELOW_SHARE
        if not choice.goes and key >= choice.bar:
            code = ReasonCode.TIED_WITH_SHARE
        args = {
            "key": key,
            "bar": choice.bar,
            "share": self._share,
            "level": choice.level,
            "runs": runs,
            "gone": ranking.gone,
            "credit": ranking.credit,
        }
        return Reason(code, args)


class DailyLimit:
    """A gate that forwards what another gate does, up to a limit in 24 hours.

    >>> DailyLimit(TopShare(0.1), 20).name
    'top 10%, at most 20 a day'
    """

    def __init__(self, gate: Threshold | TopShare, most: int) -> None:
        self.name = f"{gate.name}, at most {most} a day"
        self._gate = gate if isinstance(gate, Threshold) else gate.renamed(self.name)
        self.last = gate.last
        self.choose = gate.choose
        self._most = most

    def decide(self, score: Score, history: GateHistory) -> Decision:
        """Forward what the other gate forwards, up to the limit."""
        decided = self._gate.decide(score, history)
        if decided.decision == "withhold" or self.has_room(history):
            return decided
        reason = Reason(ReasonCode.DAILY_LIMIT, {**decided.told.args, "limit": self._most})
        return decided._replace(decision="withhold", reason=reason)

    def has_room(self, history: GateHistory) -> bool:
        """Return whether fewer than the limit were forwarded in the last 24 hours."""
        return history.forwarded_in_a_day() < self._most


SettingsGate: TypeAlias = Threshold | TopShare | DailyLimit
"""A gate made from settings, which can also choose without a reason, for many runs."""


class GateSettings(Protocol):
    """The settings of a gate."""

    @property
    def threshold(self) -> float | str:
        """A score, or words such as ``top 10%``."""

    @property
    def max_per_day(self) -> int | None:
        """The limit in 24 hours; None means no limit."""


def gate_of(settings: GateSettings) -> SettingsGate:
    """Return the gate that the settings describe.

    >>> from kp_middleware import Settings
    >>> gate_of(Settings(threshold="top 10%", max_per_day=20)).name
    'top 10%, at most 20 a day'
    """
    return make_gate(settings.threshold, settings.max_per_day)


def make_gate(threshold: float | str, max_per_day: int | None = None) -> SettingsGate:
    """Return the gate for a threshold and a daily limit.

    >>> make_gate("top 10%", 20).name
    'top 10%, at most 20 a day'
    """
    share = top_share(threshold) if isinstance(threshold, str) else None
    gate = Threshold(float(threshold)) if share is None else TopShare(share)
    return gate if max_per_day is None else DailyLimit(gate, max_per_day)


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


_DAY_MS: Final = DAY_S * 1000
_NO_RUNS: Final = Ranking(0)


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
    pasts = [Past(gate) for gate in gates]
    for run in runs:
        yield tuple(number for number, past in enumerate(pasts) if past.forwards(run))


class Past:
    """The decisions of one gate so far: a `GateHistory` in memory."""

    def __init__(self, gate: SettingsGate) -> None:
        self.rank_key = 0.0
        self._gate = gate
        self._domain = ""
        self._now_ms = 0
        self._rankings: dict[str, Ranking] = {}
        self._let_through_ms: list[int] = []

    def forwards(self, run: ScoredRun) -> bool:
        """Decide on the next run, and count it."""
        gate, ranking = self._gate, _NO_RUNS
        self.rank_key, self._domain, self._now_ms = run.key, run.domain, run.decided_ms
        if gate.last:
            ranking = self.ranking(gate.name, gate.last)
        choice = gate.choose(run.score, run.key, ranking)
        if gate.last:
            ranking.add(run.key, gone=choice.goes, credit=choice.credit)
        goes = choice.goes and (not isinstance(gate, DailyLimit) or gate.has_room(self))
        if goes and not run.is_private:
            insort(self._let_through_ms, run.decided_ms)
        return goes

    def ranking(self, gate: str, last: int) -> Ranking:  # noqa: ARG002 - there is one gate
        """Return the last runs of the same domain."""
        if self._domain not in self._rankings:
            self._rankings[self._domain] = Ranking(last)
        return self._rankings[self._domain]

    def forwarded_in_a_day(self) -> int:
        """Return the number of runs forwarded in the last 24 hours that may leave."""
        until = bisect_right(self._let_through_ms, self._now_ms)
        return until - bisect_left(self._let_through_ms, self._now_ms - _DAY_MS)
