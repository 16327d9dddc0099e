"""What thresholds would do: the rows of `what-if`."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from kp_middleware.storage import Distribution, Effect, Hundredth, Row

ROW_COLUMNS: Final = ("threshold", "would_go", "traces", "share")
"""What text has of a threshold: how many of how many traces reach it, and their share, 0 to 1."""

ONE_COLUMNS: Final = ("change", "id", "domain", "score", "threshold", "objective")
"""What text has of a trace that changes: its score, and the threshold of its day."""

_ALL: Final = 100


def by_threshold(hundredths: Sequence[Hundredth], step: int) -> Iterator[Row]:
    """One row for each threshold from 0 to 1: in all, and by domain, the most traces first.

    Args:
        hundredths: How many traces reach which hundredth.
        step: From one threshold to the next, in hundredths.
    """
    domains = _by_domain(hundredths)
    for threshold in range(0, _ALL + 1, step):
        named = {name: _reach(counts, threshold) for name, counts in domains.items()}
        would_go = sum(one["would_go"] for one in named.values())
        traces = sum(one["traces"] for one in named.values())
        yield {"threshold": threshold / _ALL, **_share(would_go, traces), "domains": named}


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
        "threshold": threshold,
        **_share(sum(one.would_go for one in effects), sum(one.traces for one in effects)),
        "went": sum(one.went for one in effects),
        "newly_go": {
            "count": newly_go,
            "nearest": spread.newly_go(threshold, limit) if newly_go else [],
        },
        "newly_stay": {
            "count": newly_stay,
            "nearest": spread.newly_stay(threshold, limit) if newly_stay else [],
        },
        "domains": {one.domain: _of_domain(one) for one in effects},
    }


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
