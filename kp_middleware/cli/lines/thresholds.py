"""What thresholds would do, as a person reads it on a terminal."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from kp_middleware.cli.lines.bars import bar
from kp_middleware.cli.output.screen import broken, padded
from kp_middleware.core.gates import exact
from kp_middleware.storage import Row
from kp_middleware.views.thresholds import never_leave
from kp_middleware.views.wording import (
    cut,
    in_hundredths,
    one_line,
    percent,
    short_bar,
    short_id,
    width_of,
)

_BAR: Final = 20
_SHORT_BAR: Final = 6
_COUNT: Final = 9
_SHARE: Final = 6
_DOMAIN: Final = 16
_HEAD: Final = 12
_THRESHOLD: Final = 6
_GAP: Final = "  "
_ROOMY: Final = 60
_ROOM_FOR_DOMAIN: Final = 90


class _Column(NamedTuple):
    """The shares of one domain."""

    name: str
    width: int


def threshold_lines(rows: Sequence[Row], current: float | None, width: int) -> Iterator[str]:
    """One line a threshold, with as many domains as there is room for.

    Args:
        rows: For each threshold, as `rows_of` gives them; at least one.
        current: What the last scored trace was held against; None where that is another for each.
        width: Of the terminal, in characters.
    """
    names = [*rows[0]["domains"]]
    columns = [_column(name) for name in names] if len(names) > 1 else []
    room = width - len("threshold") - _COUNT - _SHARE - 3 * len(_GAP)
    spare = room - sum(one.width + len(_GAP) for one in columns)
    bar_width = max(min(max(spare, _SHORT_BAR), _BAR, room), 0)
    shown = [*_fitting(columns, room - bar_width)]
    heading = f"Of {rows[0]['traces']:,} traces that may leave, at each threshold"
    yield from broken(f"{heading}:" if not shown else f"{heading}; by domain, the share:", width)
    yield ""
    head = ["threshold", f"{'would go':>{_COUNT}}", f"{'share':>{_SHARE}}", " " * bar_width]
    head += [f"{cut(one_line(one.name), one.width):>{one.width}}" for one in shown]
    yield _GAP.join(head).rstrip()
    for row in rows:
        yield _line(row, shown, bar_width, is_current=row["threshold"] == current)
    yield ""
    yield from broken(" ".join(_remarks(rows[0], current, len(names) - len(shown))), width)


def _column(name: str) -> _Column:
    return _Column(name, max(min(width_of(one_line(name)), _HEAD), _SHARE))


def _fitting(columns: Sequence[_Column], room: int) -> Iterator[_Column]:
    """Those that have room, the most traces first."""
    for one in columns:
        room -= one.width + len(_GAP)
        if room < 0:
            return
        yield one


def _line(row: Row, shown: Sequence[_Column], bar_width: int, *, is_current: bool) -> str:
    mark = "→" if is_current else " "
    told = [f"{mark}{in_hundredths(row['threshold']):>8}", *_told(row)]
    told.append(padded(bar(row["share"], bar_width), bar_width))
    told += [f"{_percent(row['domains'][one.name]):>{one.width}}" for one in shown]
    return _GAP.join(told).rstrip()


def _told(row: Row) -> tuple[str, str]:
    return f"{row['would_go']:>{_COUNT},}", f"{_percent(row):>{_SHARE}}"


def _percent(row: Row) -> str:
    return percent(row["would_go"], row["traces"])


def _remarks(row: Row, current: float | None, left_out: int) -> Iterator[str]:
    if current is None:
        yield "Each run was held against a bar of its own: see kp-middleware calibrate."
    else:
        yield f"→ The last scored trace was held against {exact(current)}."
    if row["private"]:
        yield never_leave(row["private"])
    if left_out and len(row["domains"]) > 1:
        yield f"Domains not shown: {left_out} (-d, --csv or a wider window)."
    yield "--threshold 0.7 says which traces would change."


def one_threshold_lines(effect: Row, width: int) -> Iterator[str]:
    """The counts of one threshold, by domain too, and the traces that change."""
    at = exact(effect["threshold"])
    yield from broken(
        f"At {at}, {effect['would_go']:,} of {effect['traces']:,} traces would"
        f" have gone ({_percent(effect)}); {effect['went']:,} were let through by the gate of"
        " their day.",
        width,
    )
    if effect["private"]:
        yield from broken(never_leave(effect["private"]), width)
    if len(effect["domains"]) > 1:
        yield ""
        for name, row in effect["domains"].items():
            count, share = _told(row)
            of = f"{count} of {row['traces']:>{_COUNT},}{share:>8}"
            yield f"  {padded(one_line(name), min(_DOMAIN, max(width - len(of) - 2, 1)))}{of}"
    for change, words in (("newly_go", "would newly go"), ("newly_stay", "would newly stay")):
        yield ""
        count, nearest = effect[change]["count"], effect[change]["nearest"]
        more = f", the nearest {len(nearest)}" if nearest and len(nearest) < count else ""
        yield f"{count:,} {words}{more}"
        for trace in nearest:
            yield _trace(trace, width)


def _trace(trace: Row, width: int) -> str:
    told = f"  {short_id(trace['id'])}  {trace['score']:.3f}, was held against"
    if width < _ROOMY:
        return f"{told} {short_bar(trace['threshold'])}"
    told += f" {short_bar(trace['threshold']):<{_THRESHOLD}}  "
    if width >= _ROOM_FOR_DOMAIN:
        told += f"{padded(one_line(trace['domain']), _DOMAIN)}  "
    return cut(told + one_line(trace["objective"]), width)
