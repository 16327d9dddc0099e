"""Decide what may leave: from the score, and from what was decided before.

The words of the reasons are data: the column ``traces.verdict`` tells its kinds by them.
"""

from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from kp_middleware.scores import Score
from kp_middleware.shares import UNTIL_TOLD, exact, fewest_runs, share_in_words, top_share
from kp_middleware.specified import SPECIFIED_THRESHOLD

if TYPE_CHECKING:
    from kp_middleware.settings import Settings


class Decision(NamedTuple):
    """What the gate says of one trace.

    Attributes:
        decision: Whether it may leave.
        reason: Why, in words.
        threshold: The score that was asked for this time, 0 to 1.
    """

    decision: Literal["forward", "withhold"]
    reason: str
    threshold: float


class GateHistory(Protocol):
    """What was decided before a run."""

    def standing(self, score: float, *, share: float) -> tuple[int, int, float]:
        """Where a score stands among the last runs of the same domain.

        Returns:
            How many those are (of the last 30 days, at most 500); how many of them scored more, or
            as much and were forwarded; and the lowest score among the best ``share`` of them.
        """

    def forwarded_in_a_day(self) -> int:
        """How many others that may leave this machine were let through in the last 24 hours."""


class Gate(Protocol):
    """Decides what may leave; stored by its name with each decision."""

    @property
    def name(self) -> str:
        """Its rule in a few words."""

    def decide(self, score: Score, history: GateHistory) -> Decision:
        """Say whether a trace may leave. The history is as it is in the file, for all processes."""


class Threshold:
    """Lets through what scores at least this much.

    >>> Threshold(0.75).name
    'threshold 0.75'
    """

    def __init__(self, threshold: float) -> None:
        self.threshold = threshold
        self.name = f"threshold {exact(threshold)}"

    def decide(self, score: Score, history: GateHistory) -> Decision:  # noqa: ARG002 - any gate's
        """Forward at or above the threshold."""
        if score.value >= self.threshold:
            reason = f"score {self._told(score.value)} is at least {exact(self.threshold)}"
            return Decision("forward", reason, self.threshold)
        reason = f"score {self._told(score.value)} is below {exact(self.threshold)}"
        return Decision("withhold", reason, self.threshold)

    def _told(self, score: float) -> str:
        """With three digits, or with as many as it takes to be on its side of the threshold."""
        for digits in range(3, 16):
            told = f"{score:.{digits}f}"
            if (float(told) >= self.threshold) == (score >= self.threshold):
                return told
        return repr(score)


class TopShare:
    """Lets through the best share of each domain's runs: those that few of the last ones excel.

    As long as it does not know enough runs to tell, the protocol's own threshold holds. Among runs
    that score the same, the first ones go, and the others only when those are long ago.

    Args:
        share: From 0.01 to 1.

    >>> TopShare(0.1).name
    'top 10%'
    """

    def __init__(self, share: float) -> None:
        self.name = share_in_words(share)
        self._share = share
        self._fewest = fewest_runs(share)
        self._until_then = Threshold(SPECIFIED_THRESHOLD)

    def decide(self, score: Score, history: GateHistory) -> Decision:
        """Forward where fewer than the share of the last runs are ahead."""
        runs, ahead, bar = history.standing(score.value, share=self._share)
        if runs < self._fewest:
            decided = self._until_then.decide(score, history)
            known = f"{UNTIL_TOLD} {self._fewest} runs, not {runs}"
            return decided._replace(reason=f"{decided.reason}, {known}")
        among = f"the {self.name} of the domain's last {runs} runs"
        if ahead < round(self._share * runs, 6):
            return Decision("forward", f"score {score.value:.3f} is among {among}", bar)
        if score.value >= bar:
            reason = f"score {score.value:.3f} is only as good as {among}, which have gone"
            return Decision("withhold", reason, bar)
        value, begins = _told_apart(score.value, bar)
        reason = f"score {value} is below {begins}, where {among} begin"
        return Decision("withhold", reason, bar)


def _told_apart(one: float, other: float) -> tuple[str, str]:
    """Two numbers with three digits, or with as many as it takes to see which is more.

    >>> _told_apart(0.61, 0.7), _told_apart(0.60999, 0.61)
    (('0.610', '0.700'), ('0.60999', '0.61000'))
    """
    for digits in range(3, 16):
        told = f"{one:.{digits}f}", f"{other:.{digits}f}"
        if told[0] != told[1]:
            return told
    return repr(one), repr(other)


class DailyLimit:
    """Lets through what another gate does, but no more than so many in 24 hours.

    >>> DailyLimit(TopShare(0.1), 20).name
    'top 10%, at most 20 a day'
    """

    def __init__(self, gate: Gate, most: int) -> None:
        self.name = f"{gate.name}, at most {most} a day"
        self._gate = gate
        self._most = most

    def decide(self, score: Score, history: GateHistory) -> Decision:
        """Forward what the other gate forwards, while there is room."""
        decided = self._gate.decide(score, history)
        if decided.decision == "withhold" or history.forwarded_in_a_day() < self._most:
            return decided
        limit = f"but max_per_day = {self._most} were let through in the last 24 hours"
        return decided._replace(decision="withhold", reason=f"{decided.reason}, {limit}")


def gate_of(settings: "Settings") -> Gate:
    """The gate that the settings describe.

    >>> from kp_middleware import Settings
    >>> gate_of(Settings(threshold="top 10%", max_per_day=20)).name
    'top 10%, at most 20 a day'
    """
    threshold, limit = settings.threshold, settings.max_per_day
    share = top_share(threshold) if isinstance(threshold, str) else None
    gate: Gate = Threshold(float(threshold)) if share is None else TopShare(share)
    return gate if limit is None else DailyLimit(gate, limit)
