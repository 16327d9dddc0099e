"""What thresholds would do, as a person reads it on a terminal."""

from collections.abc import Iterator, Sequence
from typing import Final

from kp_middleware.inspection.lines.bars import bar
from kp_middleware.inspection.output.screen import broken, cut, padded
from kp_middleware.inspection.output.wording import one_line, short_id
from kp_middleware.storage import Row

_BAR: Final = 20
_COUNT: Final = 9
_DOMAIN: Final = 16
_GAP: Final = "  "


def threshold_lines(rows: Sequence[Row], current: float | None, width: int) -> Iterator[str]:
    """One line a threshold, with as many domains as there is room for.

    Args:
        rows: For each threshold, as `by_threshold` gives them.
        current: What the last scored trace was held against; None where there is none.
        width: Of the terminal, in characters.
    """
    traces = rows[0]["traces"]
    if not traces:
        yield "no trace here has a score yet"
        return
    names = [*rows[0]["domains"]]
    fixed = len("threshold") + _COUNT + 6 + _BAR + 4 * len(_GAP)
    shown = names[: max((width - fixed) // (_DOMAIN + len(_GAP)), 0)] if len(names) > 1 else []
    yield f"Of {traces:,} traces with a score would have gone, at each threshold:"
    yield ""
    head = ["threshold", f"{'would go':>{_COUNT}}", " share", " " * _BAR]
    yield _GAP.join(
        [*head, *(f"{cut(one_line(name), _DOMAIN):>{_DOMAIN}}" for name in shown)]
    ).rstrip()
    for row in rows:
        yield _line(row, shown)
    yield ""
    yield from broken(_remarks(current, names, shown), width)


def _line(row: Row, domains: Sequence[str]) -> str:
    told = [f"{row['threshold']:>9.2f}", *_told(row), padded(bar(row["share"], _BAR), _BAR)]
    for name in domains:
        count, share = _told(row["domains"][name])
        told.append(f"{count}{share:>{_DOMAIN - _COUNT}}")
    return _GAP.join(told).rstrip()


def _told(row: Row) -> tuple[str, str]:
    return f"{row['would_go']:>{_COUNT},}", f"{row['share']:>6.1%}"


def _remarks(current: float | None, names: Sequence[str], shown: Sequence[str]) -> str:
    told = [] if current is None else [f"The last scored trace was held against {current:g}."]
    if len(names) > 1 and len(shown) < len(names):
        told.append(f"Domains not shown: {len(names) - len(shown)} (-d, --json or a wider window).")
    told.append("--threshold 0.7 says which traces would change.")
    return " ".join(told)


def one_threshold_lines(effect: Row, width: int) -> Iterator[str]:
    """The counts of one threshold, by domain too, and the traces that change."""
    threshold = f"{effect['threshold']:g}"
    yield (
        f"At {threshold}, {effect['would_go']:,} of {effect['traces']:,} traces would have gone"
        f" ({effect['share']:.1%}); {effect['went']:,} did reach the threshold of their day."
    )
    if len(effect["domains"]) > 1:
        yield ""
        for name, row in effect["domains"].items():
            count, share = _told(row)
            of = f"{count} of {row['traces']:>{_COUNT},}{share:>8}"
            yield f"  {padded(one_line(name), _DOMAIN)}{of}"
    for change, words in (("newly_go", "would newly go"), ("newly_stay", "would newly stay")):
        yield ""
        count, nearest = effect[change]["count"], effect[change]["nearest"]
        more = f", the nearest {len(nearest)}" if nearest and len(nearest) < count else ""
        yield f"{count:,} {words}{more}"
        for trace in nearest:
            yield _trace(trace, width)


def _trace(trace: Row, width: int) -> str:
    told = f"  {short_id(trace['id'])}  {trace['score']:.3f}, was held against"
    told += f" {trace['threshold']:g}  {one_line(trace['domain'])}  "
    return cut(told + one_line(trace["objective"]), width)
