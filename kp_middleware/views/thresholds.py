"""What other settings of the gate would let through: the numbers of ``calibrate``."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple

from kp_middleware.core.formula import DEFAULT_THRESHOLD
from kp_middleware.core.gates import make_gate
from kp_middleware.core.replay import DomainScores, Outcome, ScoredRun, Trial
from kp_middleware.core.share import WARM_UP

BEST_TENTH: Final = "top 10%"

_TRIED: Final[Sequence[float | str]] = (
    *(DEFAULT_THRESHOLD, 0.7, 0.65, 0.6, 0.55, 0.5, 0.45, 0.4),
    *("top 5%", BEST_TENTH, "top 20%"),
)
_PLENTY: Final = 0.05  # of all runs: half of what the best tenth would be


class Reach(NamedTuple):
    """The runs that reach a threshold: how many of how many, and their share from 0 to 1."""

    would_go: int
    traces: int

    @property
    def share(self) -> float:
        """The share from 0 to 1, with four digits."""
        return round(self.would_go / self.traces, 4) if self.traces else 0.0

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON shows it."""
        return {**self._asdict(), "share": self.share}


class ThresholdView(NamedTuple):
    """The runs that reach one threshold.

    Attributes:
        threshold: From 0 to 1.
        all: Those of all domains.
        domains: Those of each domain, the largest first.
        private: The private runs, which never leave and are not counted.
    """

    threshold: float
    all: Reach
    domains: Mapping[str, Reach]
    private: int

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON shows it."""
        domains = {name: reach.as_json() for name, reach in self.domains.items()}
        return {
            "threshold": self.threshold,
            **self.all.as_json(),
            "domains": domains,
            "private": self.private,
        }

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield a row for each domain, ``all`` first."""
        for domain, reach in {"all": self.all, **self.domains}.items():
            told = {"would_go": reach.would_go, "traces": reach.traces, "share": reach.share}
            yield {"threshold": self.threshold, "domain": domain, **told}


@dataclass(frozen=True, slots=True)
class Change:
    """The runs whose decision would change.

    Attributes:
        domains: How many, by domain.
        nearest: Those nearest to the threshold first.
    """

    domains: Mapping[str, int]
    nearest: Sequence[ScoredRun]

    @property
    def count(self) -> int:
        """How many in all domains."""
        return sum(self.domains.values())


class EffectView(NamedTuple):
    """What one threshold would change.

    Attributes:
        reach: The runs that reach it.
        went: The runs that their gates forwarded, by domain.
        newly_go: The withheld runs that reach it.
        newly_stay: The forwarded runs that do not.
    """

    reach: ThresholdView
    went: Mapping[str, int]
    newly_go: Change
    newly_stay: Change


class Scores:
    """The scores of runs by domain, to hold against thresholds; private runs are not counted.

    Args:
        runs: The scored runs.
    """

    def __init__(self, runs: Iterable[ScoredRun]) -> None:
        self.leaving: list[ScoredRun] = []
        self.private = 0
        scores: dict[str, list[float]] = {}
        for run in runs:
            if run.is_private:
                self.private += 1
            else:
                self.leaving.append(run)
                scores.setdefault(run.domain, []).append(run.score)
        largest = sorted(scores.items(), key=lambda item: (-len(item[1]), item[0]))
        self._scores = {name: sorted(of) for name, of in largest}

    def at(self, threshold: float) -> ThresholdView:
        """Return the runs that reach a threshold."""
        domains = {
            name: Reach(len(scores) - bisect_left(scores, threshold), len(scores))
            for name, scores in self._scores.items()
        }
        would_go = sum(reach.would_go for reach in domains.values())
        return ThresholdView(threshold, Reach(would_go, len(self.leaving)), domains, self.private)

    def curve(self, step: int, current: float | None) -> list[ThresholdView]:
        """Return the runs that reach each threshold from 0 to 1, and the one in force.

        Args:
            step: From one threshold to the next, in hundredths.
            current: The threshold in force; None if there is none.
        """
        if not self.leaving:
            return []
        thresholds = {at / 100 for at in range(0, 101, step)}
        if current is not None:
            thresholds.add(current)
        return [*map(self.at, sorted(thresholds))]

    def effect(self, threshold: float) -> EffectView:
        """Return what a threshold would change."""
        go = [run for run in self.leaving if not run.is_cleared and run.score >= threshold]
        stay = [run for run in self.leaving if run.is_cleared and run.score < threshold]
        went = [run for run in self.leaving if run.is_cleared]
        go.sort(key=lambda run: (run.score, run.seq))
        stay.sort(key=lambda run: (-run.score, -run.seq))
        return EffectView(
            self.at(threshold),
            self._by_domain(went),
            Change(self._by_domain(go), go),
            Change(self._by_domain(stay), stay),
        )

    def _by_domain(self, runs: Sequence[ScoredRun]) -> Mapping[str, int]:
        counts = dict.fromkeys(self._scores, 0)
        for run in runs:
            counts[run.domain] += 1
        return counts


class SettingView(NamedTuple):
    """What one setting of the gate would have let through.

    Attributes:
        setting: A threshold, or a share such as ``top 10%``.
        let_through: How many runs.
        share: Their share of all, from 0 to 1.
        a_day: How many a day.
        succeeded: How many of them are known to have done their task.
        known: Of how many it is known how they ended.
        if_not_private: How many private runs would have been let through, if they were not.
        domains: How many, by domain.
    """

    setting: float | str
    let_through: int
    share: float
    a_day: float
    succeeded: int
    known: int
    if_not_private: int
    domains: Mapping[str, int]

    @classmethod
    def of(cls, setting: float | str, outcome: Outcome, trial: Trial) -> "SettingView":
        """Count the outcome of a setting."""
        share = round(outcome.let_through / trial.runs, 4) if trial.runs else 0.0
        a_day = round(outcome.let_through / trial.days, 2)
        return cls(
            setting,
            outcome.let_through,
            share,
            a_day,
            outcome.succeeded,
            outcome.known,
            outcome.if_not_private,
            outcome.domains,
        )


@dataclass(frozen=True, slots=True)
class Calibration:
    """What each setting of the gate would have let through, and which to use.

    Attributes:
        runs: The scored runs that may leave.
        private: Those that never leave.
        days: From the first to the last, at least 1.
        runs_needed: How many runs of a domain a share needs.
        now: The threshold in force.
        max_per_day: How many may leave in 24 hours; None means any number.
        recommended: The setting to use; None if there are too few runs.
        domains: The scores of each domain.
        settings: What each setting would have let through.
    """

    runs: int
    private: int
    days: float
    runs_needed: int
    now: float | str
    max_per_day: int | None
    recommended: float | str | None
    domains: Sequence[DomainScores]
    settings: Sequence[SettingView]

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON shows it."""
        return asdict(self) | {
            "domains": [one._asdict() for one in self.domains],
            "settings": [one._asdict() for one in self.settings],
        }


def calibrated(
    trial: Trial,
    *,
    now: float | str,
    most: int | None,
    reach: Callable[[int, int], None] = lambda *_: None,
) -> Calibration:
    """Try the settings of the gate on the scored runs of a file.

    Args:
        trial: The scored runs.
        now: The threshold in force.
        most: How many may leave in 24 hours; None means any number.
        reach: Is told now and then how many runs of how many are decided on.
    """
    domains = trial.domains()
    tried = _TRIED if now in _TRIED else (now, *_TRIED)
    outcomes = trial.outcomes([make_gate(setting, most) for setting in tried], reach)
    settings = [
        SettingView.of(setting, outcome, trial)
        for setting, outcome in zip(tried, outcomes, strict=True)
    ]
    of_specified = next(one.share for one in settings if one.setting == DEFAULT_THRESHOLD)
    enough = any(domain.runs >= WARM_UP for domain in domains)
    best = DEFAULT_THRESHOLD if of_specified >= _PLENTY else BEST_TENTH
    return Calibration(
        runs=trial.runs,
        private=trial.private,
        days=round(trial.days, 1),
        runs_needed=WARM_UP,
        now=now,
        max_per_day=most,
        recommended=best if enough else None,
        domains=domains,
        settings=settings,
    )


def never_leave(private: int, if_not_private: int = 0) -> str:
    """Say how many private runs are not counted, and how many of them would clear otherwise."""
    would = f" If they were not, {if_not_private:,} would clear." if if_not_private else ""
    return f"Not counted: {private:,} with a score, but private, which never leave.{would}"
