"""The runs that other settings of the gate would let through: rows of ``calibrate``."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from kp_middleware.core.formula import DEFAULT_THRESHOLD
from kp_middleware.core.gates import fewest_runs, make_gate, top_share
from kp_middleware.core.replay import Outcome, Trial
from kp_middleware.storage import Distribution, Effect, Hundredth, Row

LONG_COLUMNS: Final = ("threshold", "domain", "would_go", "traces", "share")
"""What text has: how many of how many traces reach a threshold, and their share, 0 to 1."""

ONE_COLUMNS: Final = ("change", "id", "domain", "score", "threshold", "objective")
"""What text has of a trace that changes: its score, and the threshold of its day."""

CALIBRATION_COLUMNS: Final = ("setting", "let_through", "share", "a_day", "succeeded")
"""What text has of a setting."""

BEST_TENTH: Final = "top 10%"

_TRIED: Final[Sequence[float | str]] = (
    *(DEFAULT_THRESHOLD, 0.7, 0.65, 0.6, 0.55, 0.5, 0.45, 0.4),
    *("top 5%", BEST_TENTH, "top 20%"),
)
_PLENTY: Final = 0.05  # of all runs: half of what the best tenth would be
_ALL: Final = 100


def rows_of(spread: Distribution, step: int) -> list[Row]:
    """Return a row for each threshold and for the one in force: all runs, and by domain.

    Args:
        spread: The scores.
        step: From one threshold to the next, in hundredths.

    Returns:
        The least threshold first, in each the domain with the most traces; none without a trace
        that has a score and may leave.
    """
    private = spread.hundredths(private=True)
    leaving = _without(spread.hundredths(), private)
    if not leaving:
        return []
    rows = {row["threshold"]: row for row in by_threshold(leaving, step)}
    current = spread.threshold()
    if current is not None and current not in rows:
        rows[current] = _in_force(spread, leaving, current)
    never = sum(one.traces for one in private)
    return [rows[threshold] | {"private": never} for threshold in sorted(rows)]


def by_threshold(hundredths: Sequence[Hundredth], step: int) -> Iterator[Row]:
    """Yield a row for each threshold from 0 to 1: all runs, and by domain, the largest first.

    Args:
        hundredths: How many traces reach which hundredth.
        step: From one threshold to the next, in hundredths.
    """
    domains = _by_domain(hundredths)
    for threshold in range(0, _ALL + 1, step):
        named = {name: _reach(counts, threshold) for name, counts in domains.items()}
        yield _row(threshold / _ALL, named)


def in_long_form(rows: Iterable[Row]) -> Iterator[Row]:
    """Yield a row for each threshold and domain, ``all`` first."""
    for row in rows:
        for domain, one in {"all": row, **row["domains"]}.items():
            yield {
                "threshold": row["threshold"],
                "domain": domain,
                **{name: one[name] for name in LONG_COLUMNS[2:]},
            }


def effect_row(spread: Distribution, threshold: float, limit: int) -> Row:
    """Return what one threshold would do, in all and by domain, and which runs change.

    Args:
        spread: The scores.
        threshold: From 0 to 1.
        limit: How many traces at the most of those that newly go, and of those that newly stay.
    """
    effects = spread.effects(threshold)
    newly_go = sum(one.newly_go for one in effects)
    newly_stay = sum(one.newly_stay for one in effects)
    return {
        **_row(threshold, {one.domain: _of_domain(one) for one in effects}),
        "private": sum(one.traces for one in spread.hundredths(private=True)),
        "went": sum(one.went for one in effects),
        "newly_go": {
            "count": newly_go,
            "nearest": spread.newly_go(threshold, limit) if newly_go else [],
        },
        "newly_stay": {
            "count": newly_stay,
            "nearest": spread.newly_stay(threshold, limit) if newly_stay else [],
        },
    }


def calibration(
    trial: Trial,
    *,
    now: float | str,
    most: int | None,
    reach: Callable[[int, int], None] = lambda *_: None,
) -> Row:
    """Return the scores by domain, what each setting would have let through, and which to use.

    Args:
        trial: The scored runs.
        now: What the threshold is set to.
        most: How many may leave in 24 hours; None means any number.
        reach: Is told now and then how many runs of how many are decided on.
    """
    domains = trial.domains()
    tried = _TRIED if now in _TRIED else (now, *_TRIED)
    outcomes = trial.outcomes([make_gate(setting, most) for setting in tried], reach)
    rows = [
        _setting_row(setting, outcome, trial)
        for setting, outcome in zip(tried, outcomes, strict=True)
    ]
    of_specified = next(row["share"] for row in rows if row["setting"] == DEFAULT_THRESHOLD)
    needed = fewest_runs(top_share(BEST_TENTH) or 1)
    enough = any(domain.runs >= needed for domain in domains)
    best = DEFAULT_THRESHOLD if of_specified >= _PLENTY else BEST_TENTH
    return {
        "runs": trial.runs,
        "private": trial.private,
        "days": round(trial.days, 1),
        "runs_needed": needed,
        "now": now,
        "max_per_day": most,
        "recommended": best if enough else None,
        "domains": [domain._asdict() for domain in domains],
        "settings": rows,
    }


def never_leave(private: int) -> str:
    """Say how many private runs are not counted."""
    return f"Not counted: {private:,} with a score, but private, which never leave."


def _without(hundredths: Iterable[Hundredth], private: Iterable[Hundredth]) -> list[Hundredth]:
    """Return those that may leave."""
    never = {(one.domain, one.hundredth): one.traces for one in private}
    left = (one._replace(traces=one.traces - never.get(one[:2], 0)) for one in hundredths)
    return [one for one in left if one.traces]


def _in_force(spread: Distribution, leaving: Sequence[Hundredth], threshold: float) -> Row:
    """Return the row of a threshold that is no step; between two hundredths the file is asked."""
    hundredths = {row["threshold"]: row for row in by_threshold(leaving, 1)}
    if threshold in hundredths:
        return hundredths[threshold]
    effects = spread.effects(threshold)
    return _row(threshold, {one.domain: _share(one.would_go, one.traces) for one in effects})


def _row(threshold: float, domains: Mapping[str, Row]) -> Row:
    would_go = sum(one["would_go"] for one in domains.values())
    traces = sum(one["traces"] for one in domains.values())
    return {"threshold": threshold, **_share(would_go, traces), "domains": domains}


def _by_domain(hundredths: Sequence[Hundredth]) -> Mapping[str, Mapping[int, int]]:
    counts: dict[str, dict[int, int]] = {}
    for one in hundredths:
        counts.setdefault(one.domain, {})[one.hundredth] = one.traces
    return dict(sorted(counts.items(), key=lambda item: (-sum(item[1].values()), item[0])))


def _reach(counts: Mapping[int, int], threshold: int) -> Row:
    would_go = sum(traces for hundredth, traces in counts.items() if hundredth >= threshold)
    return _share(would_go, sum(counts.values()))


def _of_domain(effect: Effect) -> Row:
    changes = {"newly_go": effect.newly_go, "newly_stay": effect.newly_stay}
    return {**_share(effect.would_go, effect.traces), "went": effect.went, **changes}


def _share(would_go: int, traces: int) -> Row:
    share = round(would_go / traces, 4) if traces else 0.0
    return {"would_go": would_go, "traces": traces, "share": share}


def _setting_row(setting: float | str, outcome: Outcome, trial: Trial) -> Row:
    return {
        "setting": setting,
        "let_through": outcome.let_through,
        "share": round(outcome.let_through / trial.runs, 4) if trial.runs else 0.0,
        "a_day": round(outcome.let_through / trial.days, 2),
        "succeeded": outcome.succeeded,
        "domains": outcome.domains,
    }
