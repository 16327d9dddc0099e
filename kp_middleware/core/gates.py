"""Gates: decide from a score and earlier decisions whether a run is forwarded.

Reasons are codes with arguments; they are put into words where they are shown.
"""

import math
import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, Literal, NamedTuple, Protocol

from kp_middleware.core.formula import DEFAULT_THRESHOLD, Score

_TOP: Final = re.compile(r"\s*top\s*(\d{1,3}(?:\.\d{1,4})?)\s*(?:%|percent)\s*", re.IGNORECASE)
_FEWEST_RUNS: Final = 50

LAST_RUNS: Final = 500
"""The number of a domain's last runs that a gate considers."""

DAY_S: Final = 24 * 3600
WINDOW_S: Final = 30 * DAY_S
"""The age of the oldest run that a gate considers, in seconds."""


class ReasonCode(StrEnum):
    """The kind of reason for a decision, with the arguments that come with it."""

    ABOVE_THRESHOLD = "above_threshold"
    """``score``, ``threshold``; while a share warms up also ``runs`` and ``needed``."""
    BELOW_THRESHOLD = "below_threshold"
    """``score``, ``threshold``."""
    WARMING_UP = "warming_up"
    """Below the threshold that holds until a share can be told: those and ``runs``, ``needed``."""
    IN_SHARE = "in_share"
    """``score``, ``share``, ``runs``, ``bar``."""
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
        threshold: The score that was asked for this time, 0 to 1.
    """

    decision: Literal["forward", "withhold"]
    reason: str | Reason
    threshold: float

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


class Standing(NamedTuple):
    """The rank of a score among the last runs of its domain.

    Attributes:
        runs: How many they are: of the last 30 days, at most 500.
        ahead: How many of them scored more, or as much and were forwarded.
        bar: The lowest score among the best share of them; 0 of none.
    """

    runs: int
    ahead: int
    bar: float


def rank(scores: Sequence[float], tied: int, score: float, *, share: float) -> Standing:
    """Return the rank of a score among those of the last runs.

    Args:
        scores: Of those runs, the lowest first.
        tied: How many of them scored as much, and were forwarded.
        score: To rank.
        share: From 0 to 1.

    >>> rank([0.2, 0.4, 0.4, 0.6, 0.8], 1, 0.4, share=0.4)
    Standing(runs=5, ahead=3, bar=0.6)
    """
    runs = len(scores)
    best = math.ceil(round(share * runs, 6))
    bar = scores[-best] if best else 0.0
    return Standing(runs, runs - bisect_right(scores, score) + tied, bar)


class GateHistory(Protocol):
    """The decisions before a run, the same for every process on the file."""

    def standing(self, score: float, *, share: float) -> tuple[int, int, float]:
        """Rank a score among the last runs of the same domain.

        Returns:
            The number of those runs (of the last 30 days, at most 500); how many of them scored
            more, or as much and were forwarded; and the lowest score in the best ``share`` of them.
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


class SettingsGate(Gate, Protocol):
    """A gate made from settings, which can also decide without a reason, for many runs."""

    def admits(self, score: float, history: GateHistory) -> bool:
        """Return whether a run with this score is forwarded: the check behind `decide`."""


class Threshold:
    """A gate that forwards runs with at least a given score.

    >>> Threshold(0.75).name
    'threshold 0.75'
    """

    def __init__(self, threshold: float) -> None:
        self.threshold = threshold
        self.name = f"threshold {exact(threshold)}"

    def decide(self, score: Score, history: GateHistory) -> Decision:
        """Forward at or above the threshold."""
        args = {"score": score.value, "threshold": self.threshold}
        if self.admits(score.value, history):
            reason = Reason(ReasonCode.ABOVE_THRESHOLD, args)
            return Decision("forward", reason, self.threshold)
        return Decision("withhold", Reason(ReasonCode.BELOW_THRESHOLD, args), self.threshold)

    def admits(self, score: float, history: GateHistory) -> bool:  # noqa: ARG002 - any gate's
        """Return whether the score reaches the threshold."""
        return score >= self.threshold


class TopShare:
    """A gate that forwards the best share of each domain's runs.

    The protocol's own threshold holds until the domain has enough runs. Of runs that score the
    same the first ones go.

    Args:
        share: From 0.01 to 1.

    >>> TopShare(0.1).name
    'top 10%'
    """

    def __init__(self, share: float) -> None:
        self.name = share_in_words(share)
        self._share = share
        self._needed = fewest_runs(share)
        self._until_then = Threshold(DEFAULT_THRESHOLD)

    def decide(self, score: Score, history: GateHistory) -> Decision:
        """Forward if fewer than the share of the last runs rank ahead."""
        standing = history.standing(score.value, share=self._share)
        runs, _, bar = standing
        if runs < self._needed:
            return self._warming_up(self._until_then.decide(score, history), runs)
        args = {"score": score.value, "share": self._share, "runs": runs, "bar": bar}
        if self._is_among(standing):
            return Decision("forward", Reason(ReasonCode.IN_SHARE, args), bar)
        code = ReasonCode.TIED_WITH_SHARE if score.value >= bar else ReasonCode.BELOW_SHARE
        return Decision("withhold", Reason(code, args), bar)

    def admits(self, score: float, history: GateHistory) -> bool:
        """Return whether fewer than the share of the last runs rank ahead."""
        standing = history.standing(score, share=self._share)
        if standing[0] < self._needed:
            return self._until_then.admits(score, history)
        return self._is_among(standing)

    def _is_among(self, standing: tuple[int, int, float]) -> bool:
        runs, ahead, _ = standing
        return ahead < round(self._share * runs, 6)

    def _warming_up(self, decided: Decision, runs: int) -> Decision:
        code, args = decided.told
        if decided.decision == "withhold":
            code = ReasonCode.WARMING_UP
        reason = Reason(code, {**args, "runs": runs, "needed": self._needed})
        return decided._replace(reason=reason)


class DailyLimit:
    """A gate that forwards what another gate does, up to a limit in 24 hours.

    >>> DailyLimit(TopShare(0.1), 20).name
    'top 10%, at most 20 a day'
    """

    def __init__(self, gate: SettingsGate, most: int) -> None:
        self.name = f"{gate.name}, at most {most} a day"
        self._gate = gate
        self._most = most

    def decide(self, score: Score, history: GateHistory) -> Decision:
        """Forward what the other gate forwards, up to the limit."""
        decided = self._gate.decide(score, history)
        if decided.decision == "withhold" or self._has_room(history):
            return decided
        reason = Reason(ReasonCode.DAILY_LIMIT, {**decided.told.args, "limit": self._most})
        return decided._replace(decision="withhold", reason=reason)

    def admits(self, score: float, history: GateHistory) -> bool:
        """Return whether the other gate admits it and the limit is not reached."""
        return self._gate.admits(score, history) and self._has_room(history)

    def _has_room(self, history: GateHistory) -> bool:
        return history.forwarded_in_a_day() < self._most


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
    gate: SettingsGate = Threshold(float(threshold)) if share is None else TopShare(share)
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


def fewest_runs(share: float) -> int:
    """Return the number of runs a domain needs before a share of them is meaningful.

    >>> fewest_runs(0.1), fewest_runs(0.01)
    (50, 100)
    """
    return max(_FEWEST_RUNS, math.ceil(1 / share))
