"""What thresholds would do to the traces that may leave: the rows of `what-if`."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from kp_middleware.storage import Distribution, Effect, Hundredth, Row

LONG_COLUMNS: Final = ("threshold", "domain", "would_go", "traces", "share")
"""What text has: how many of how many traces reach a threshold, and their share, 0 to 1."""

ONE_COLUMNS: Final = ("change", "id", "domain", "score", "threshold", "objective")
"""What text has of a trace that changes: its score, and the threshold of its day."""

_ALL: Final = 100


def rows_of(spread: Distribution, step: int) -> list[Row]:
    """One row for each threshold from 0 to 1, and for the one in force: in all, and by domain.

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
    """One row for each threshold from 0 to 1: in all, and by domain, the most traces first.

    Args:
        hundredths: How many traces reach which hundredth.
        step: From one threshold to the next, in hundredths.
    """
    domains = _by_domain(hundredths)
    for threshold in range(0, _ALL + 1, step):
        named = {name: _reach(counts, threshold) for name, counts in domains.items()}
        yield _row(threshold / _ALL, named)


def in_long_form(rows: Iterable[Row]) -> Iterator[Row]:
    """A row for each threshold and domain, ``all`` of them first."""
    for row in rows:
        for domain, one in {"all": row, **row["domains"]}.items():
            yield {
                "threshold": row["threshold"],
                "domain": domain,
                **{name: one[name] for name in LONG_COLUMNS[2:]},
            }


def effect_row(spread: Distribution, threshold: float, limit: int) -> Row:
    """What one threshold would do, in all and by domain, and which traces change.

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


def never_leave(private: int) -> str:
    """What is not counted."""
    return f"Not counted: {private:,} with a score, but private, which never leave."


def _without(hundredths: Iterable[Hundredth], private: Iterable[Hundredth]) -> list[Hundredth]:
    """What may leave of them; those with none are left out."""
    never = {(one.domain, one.hundredth): one.traces for one in private}
    left = (one._replace(traces=one.traces - never.get(one[:2], 0)) for one in hundredths)
    return [one for one in left if one.traces]


def _in_force(spread: Distribution, leaving: Sequence[Hundredth], threshold: float) -> Row:
    """The row of a threshold that is no step; one between two hundredths has to be asked for."""
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
