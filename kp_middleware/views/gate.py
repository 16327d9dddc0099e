"""Views of the gate: the outcomes of forwarded runs, and a calibration of thresholds."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import compress
from math import ceil
from statistics import median
from typing import Any, Final, NamedTuple

from kp_middleware.core.formula import DEFAULT_THRESHOLD
from kp_middleware.core.gates import OLDER, WARM_UP, SettingsGate, replay
from kp_middleware.storage import History, ReviewBacklog, RunEstimate, SuccessRecord
from kp_middleware.views.wording import counted

__all__ = ["Calibration", "SettingView", "calibrated", "estimate_in_words", "p_in_words",
           "private_note", "record_in_words", "review_backlog_in_words", "success_warning",
           "successes_as_json"]  # fmt: skip

_REVIEW: Final = "kp-middleware review"
_FEATURES: Final[Mapping[str, str]] = {  # those whose words differ from their names
    "failed_last_steps": "failures at the end",
    "transfer": "transfers",
    "words_per_thought": "words in a thought",
    "last_words": "words at the end",
    "last_inability": "words of inability at the end",
    "last_positive": "words of success at the end",
}


def p_in_words(p: float, reasons: Sequence[tuple[str, float, float]]) -> str:
    words = []
    for feature, off, adds in reasons:
        name = _FEATURES.get(feature, feature.replace("_", " "))
        what = f"{'more' if off > 0 else 'fewer'} {name} than usual"
        if feature == "likeness":
            what = f"like runs that {'succeeded' if adds > 0 else 'failed'}"
        words.append(f"{what} ({'for' if adds > 0 else 'against'} it)")
    return f"{p:.2f}: {', '.join(words)}" if words else f"{p:.2f}"


def estimate_in_words(estimate: RunEstimate) -> str:
    words = f"P(success) was estimated as {p_in_words(estimate.p, estimate.reasons)}."
    if estimate.known:
        words += f" Right on {estimate.right:,} of {estimate.known:,} runs with a known outcome;"
        words += f" guessing the majority outcome so far: {estimate.base_right:,}."
    return words


def review_backlog_in_words(backlog: ReviewBacklog) -> str:
    if not backlog.unreviewed:
        return "nothing to review"
    runs = f"{backlog.unreviewed:,} of the last {backlog.forwarded:,} runs that passed the gate"
    if backlog.unreviewed == backlog.forwarded:
        runs = f"{counted(backlog.forwarded, 'run')} passed the gate and"
    return f"{runs} {'is' if backlog.unreviewed == 1 else 'are'} not reviewed yet: {_REVIEW}"


def successes_as_json(record: SuccessRecord, backlog: ReviewBacklog) -> dict[str, Any]:
    counts = {name: count for name, count in record._asdict().items() if name != "some_stay"}
    warning = success_warning(record, backlog)
    return {**counts, "in_words": record_in_words(record), "warning": warning}


def success_warning(record: SuccessRecord, backlog: ReviewBacklog) -> str | None:
    if record.is_worse_than_chance:
        return (
            "the gate chooses worse than chance: forwarded runs succeeded less often than all runs."
            ' A score rewards effort; a share such as threshold="top 20%" ranks by the outcomes of'
            f" earlier runs: {_REVIEW}"
        )
    if backlog.unreviewed == backlog.forwarded >= 50:  # forwarded runs without any known outcome
        return f"none of {backlog.forwarded:,} forwarded runs has a known outcome: {_REVIEW}"
    return None


def record_in_words(record: SuccessRecord) -> str | None:
    if not record.known:
        return None
    known = counted(record.known, "run")
    words = f"{record.succeeded:,} of {known} with a confirmed outcome succeeded"
    if not record.forwarded_known:
        return words
    chosen = "chosen by the gate" if record.some_stay else "forwarded"
    return f"{words}; {record.forwarded_succeeded:,} of the {record.forwarded_known:,} {chosen}"


_BEST_TENTH: Final = "top 10%"
_TRIED: Final[Sequence[float | str]] = (
    *(DEFAULT_THRESHOLD, 0.7, 0.65, 0.6, 0.55, 0.5, 0.45, 0.4),
    *("top 5%", _BEST_TENTH, "top 20%"),
)


class SettingView(NamedTuple):
    """The runs that one setting of the gate lets through; ``known`` have a known outcome."""

    setting: float | str
    let_through: int
    share: float
    a_day: float
    succeeded: int
    known: int
    if_not_private: int
    domains: Mapping[str, int]


class DomainScores(NamedTuple):
    domain: str
    runs: int
    median: float
    top_tenth: float
    best: float


class Calibration(NamedTuple):
    """The runs that each setting of the gate lets through, and the setting to use, or None."""

    runs: int
    private: int
    days: float
    runs_needed: int
    now: float | str
    max_per_day: int | None
    recommended: str | None
    domains: Sequence[DomainScores]
    settings: Sequence[SettingView]

    def as_json(self) -> dict[str, Any]:
        domains, settings = ([row._asdict() for row in rows] for rows in self[-2:])
        return self._asdict() | {"domains": domains, "settings": settings}


def calibrated(
    history: History,
    *,
    now: float | str,
    most: int | None = None,
    more: Sequence[float | str] = (),
    domain: str | None = None,
    since: str = "",
    reach: Callable[[int, int], None] = lambda *_: None,
) -> Calibration:
    """Try settings of the gate on the scored runs of a file, in recording order.

    Runs that are private, of another domain or older take part in decisions, but are not counted.
    """
    is_limited = most is not None  # for all domains
    asked = history.domains() if domain is None or is_limited else (domain,)
    domains = history.scored_runs(asked, since=since, timed=is_limited)
    groups = {
        (name, kind): sorted(compress(runs.scores, map(kind.__eq__, runs.kinds)))
        for name, runs in domains.items()
        for kind in set(runs.kinds)
        if kind < OLDER and domain in (None, name)
    }
    scores = {name: list[float]() for name, _ in groups}
    for (name, kind), found in groups.items():
        if not kind & 1:
            scores[name] = sorted(scores[name] + found)
    names = sorted(filter(scores.get, scores), key=lambda name: (-len(scores[name]), name))
    total = sum(map(len, scores.values()))
    days = max(1.0, history.days_of_scored_runs(domain, since=since))
    tried = tuple(dict.fromkeys((*(() if now in _TRIED else (now,)), *more, *_TRIED)))
    settings = list[SettingView]()
    for setting in tried:
        gate = SettingsGate(setting, most)
        if gate.needs_history:
            went = replay(domains, gate).items()
            kinds = {name: Counter(compress(domains[name].kinds, goes)) for name, goes in went}
            counts = {(name, kind): kinds[name][kind] for name, kind in groups}
        else:
            counts = {group: gate.count(found) for group, found in groups.items()}
        settings.append(_view(setting, counts, names, total, days))
        reach(len(settings), len(tried))
    return Calibration(
        runs=total,
        private=sum(map(len, groups.values())) - total,
        days=round(days, 1),
        runs_needed=WARM_UP,
        now=now,
        max_per_day=most,
        recommended=_BEST_TENTH if any(len(each) >= WARM_UP for each in scores.values()) else None,
        domains=[
            DomainScores(name, len(found), median(found), found[-ceil(len(found) / 10)], found[-1])
            for name, found in ((name, scores[name]) for name in names)
        ],
        settings=settings,
    )


def _view(
    setting: float | str,
    forwarded: Mapping[tuple[str, int], int],
    names: Sequence[str],
    runs: int,
    days: float,
) -> SettingView:
    domains, ends = Counter[str](), Counter[int]()
    for (domain, kind), count in forwarded.items():
        domains[domain] += 0 if kind & 1 else count
        ends[kind] += count
    return SettingView(
        setting,
        let_through=domains.total(),
        share=round(domains.total() / max(1, runs), 4),
        a_day=round(domains.total() / days, 2),
        succeeded=ends[2],
        known=ends[0] + ends[2],
        if_not_private=ends.total() - domains.total(),
        domains={name: domains[name] for name in names},
    )


def private_note(private: int, if_not_private: int = 0) -> str:
    would = f" If not private, {if_not_private:,} would clear." if if_not_private else ""
    return f"Not counted: {counted(private, 'scored private run')}, never sent.{would}"
