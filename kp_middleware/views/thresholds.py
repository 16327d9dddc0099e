"""What other settings of the gate would let through: the numbers of ``calibrate``."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Final, NamedTuple

from kp_middleware.core.formula import DEFAULT_THRESHOLD
from kp_middleware.core.gates import DAY_S, WARM_UP, ScoredRun, SettingsGate, replay

BEST_TENTH: Final = "top 10%"

_TRIED: Final[Sequence[float | str]] = (
    *(DEFAULT_THRESHOLD, 0.7, 0.65, 0.6, 0.55, 0.5, 0.45, 0.4),
    *("top 5%", BEST_TENTH, "top 20%"),
)
_PLENTY: Final = 0.05  # of all runs: half of what the best tenth would be
_BINS: Final = 20
_TELL_EVERY: Final = 5000


class SettingView(NamedTuple):
    """The runs that one setting of the gate lets through; ``known``: those with a known outcome."""

    setting: float | str
    let_through: int
    share: float
    a_day: float
    succeeded: int
    known: int
    if_not_private: int
    domains: Mapping[str, int]


class DomainScores(NamedTuple):
    """The scores of one domain; ``bins`` count those from 0, 0.05, … 0.95 (1 is in the last)."""

    domain: str
    runs: int
    median: float
    top_tenth: float
    best: float
    bins: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Calibration:
    """The runs that each setting of the gate lets through, and the setting to use, or None."""

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
    runs: Sequence[ScoredRun],
    *,
    now: float | str,
    most: int | None = None,
    more: Sequence[float | str] = (),
    domain: str | None = None,
    since_ms: int | None = None,
    reach: Callable[[int, int], None] = lambda *_: None,
) -> Calibration:
    """Try settings of the gate on the scored runs of a file, in the order of recording.

    Private runs take part, but never leave, and are not counted; nor are those of another domain or
    from before ``since_ms`` (since the epoch), though they use up the daily limit.
    """
    asked = [
        (domain is None or run.domain == domain)
        and (since_ms is None or run.started_ms >= since_ms)
        for run in runs
    ]
    counted = [
        run for run, is_asked in zip(runs, asked, strict=True) if is_asked and not run.is_private
    ]
    scores: dict[str, list[float]] = {}
    for run in counted:
        scores.setdefault(run.domain, []).append(run.score)
    names = sorted(scores, key=lambda name: (-len(scores[name]), name))
    days = _days(counted)
    tried = tuple(dict.fromkeys((*(() if now in _TRIED else (now,)), *more, *_TRIED)))
    went = [dict.fromkeys(names, 0) for _ in tried]
    counts = [Counter[str]() for _ in tried]
    decided = replay(runs, [SettingsGate(setting, most) for setting in tried])
    for number, (run, is_asked, gates) in enumerate(zip(runs, asked, decided, strict=True)):
        for gate in gates if is_asked else ():
            if run.is_private:
                counts[gate]["private"] += 1
            else:
                went[gate][run.domain] += 1
                counts[gate]["succeeded"] += run.success or 0
                counts[gate]["known"] += run.success is not None
        if not number % _TELL_EVERY:
            reach(number, len(runs))
    settings = [
        SettingView(
            setting,
            through := sum(domains.values()),
            round(through / len(counted), 4) if counted else 0.0,
            round(through / days, 2),
            count["succeeded"],
            count["known"],
            count["private"],
            domains,
        )
        for setting, domains, count in zip(tried, went, counts, strict=True)
    ]
    of_specified = next(one.share for one in settings if one.setting == DEFAULT_THRESHOLD)
    best = DEFAULT_THRESHOLD if of_specified >= _PLENTY else BEST_TENTH
    return Calibration(
        runs=len(counted),
        private=sum(asked) - len(counted),
        days=round(days, 1),
        runs_needed=WARM_UP,
        now=now,
        max_per_day=most,
        recommended=best if any(len(of) >= WARM_UP for of in scores.values()) else None,
        domains=[_spread(name, sorted(scores[name])) for name in names],
        settings=settings,
    )


def _days(runs: Sequence[ScoredRun]) -> float:
    started_ms = [run.started_ms for run in runs] or [0]
    return max(1.0, (max(started_ms) - min(started_ms)) / (DAY_S * 1000))


def _spread(domain: str, scores: Sequence[float]) -> DomainScores:
    bins = [0] * _BINS
    for score in scores:
        bins[min(int(score * _BINS + 1e-9), _BINS - 1)] += 1
    tenth = scores[-math.ceil(len(scores) / 10)]
    return DomainScores(domain, len(scores), median(scores), tenth, scores[-1], tuple(bins))


def never_leave(private: int, if_not_private: int = 0) -> str:
    """Say how many private runs are not counted, and how many of them would clear otherwise."""
    would = f" If they were not, {if_not_private:,} would clear." if if_not_private else ""
    return f"Not counted: {private:,} with a score, but private, which never leave.{would}"
