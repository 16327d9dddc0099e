"""The charts of scores: how they are spread, by domain, and what each threshold lets through."""

from collections.abc import Iterator, Sequence
from typing import Final

from kp_middleware.core.gates import exact
from kp_middleware.storage import ScoreSlices
from kp_middleware.views.wording import counted, in_hundredths, part_of, share, signed
from kp_middleware.web.charts import score_filter
from kp_middleware.web.marks import (
    WIDTH,
    Anchor,
    Chart,
    Column,
    Group,
    Key,
    Label,
    Line,
    Links,
    Mark,
    Panel,
    Panels,
    Plot,
    Scale,
    Table,
    TableRow,
    colours_of,
    pile,
    room_for,
    stacked,
    straight,
    threshold_line,
)

NO_SCORES: Final = "no scored runs yet: record a run, and it is here a moment after it has ended"
_OWN_BAR: Final = "cleared the bar of their own run"
_BIN: Final = 5  # hundredths
_MOST_PANELS: Final = 8
_PANEL: Final = (168.0, 66.0)
_MOST_CURVES: Final = 7
_SWATCH: Final = 28.0  # room for more than one of the dashes


def score_histogram(scores: ScoreSlices, links: Links) -> Chart:
    """Draw all scores in steps of 0.05, and the threshold where one is fixed."""
    if not scores.traces:
        return Chart(NO_SCORES)
    threshold, below = scores.threshold, scores.traces - scores.above
    where = _OWN_BAR if threshold is None else f"at or above {exact(threshold)}"
    columns = _bins(scores, links)
    labels = [Label(f"{tenths / 10:g}", 2 * tenths, 0, "middle") for tenths in range(0, 11, 2)]
    marks, across = stacked(columns, labels, height=208, top=46, fills=0.9)
    if threshold is not None:
        x = across(threshold * len(columns))
        marks += threshold_line(f"threshold {exact(threshold)}", x, 22, 186)
        marks += _both_sides(f"{below:,} below", f"{scores.above:,} pass", x)
    names = ("Score", "Withheld", "Cleared")
    if threshold is not None:
        names = ("Score", "Below", "At or above")
    rows = (
        TableRow((one.title.partition(":")[0], *(f"{n:,}" for n in one.parts.values())), one.href)
        for one in columns
        if one.parts
    )
    return Plot(_how_many(scores, where), Table(names, (*rows,)), 208, (*marks,))


def scores_by_domain(scores: ScoreSlices, links: Links) -> Chart:
    """Draw a small histogram for each domain, as shares of its own runs."""
    if not scores.domains:
        return Chart(NO_SCORES)
    threshold, of = scores.threshold, {name: scores.of(name) for name in scores.domains}
    best = max(of, key=lambda name: of[name].above / of[name].traces)
    what = "clears its bar" if threshold is None else f"reaches {exact(threshold)}"
    often = share(of[best].above, of[best].traces)
    finding = f"{best} {what} most often: {often} of {of[best].traces:,}"
    if len(of) > _MOST_PANELS:
        finding += f"; the {_MOST_PANELS} most frequent of {len(of)} are drawn"
    drawn, colours = scores.domains[:_MOST_PANELS], colours_of(scores.domains)
    bins = {name: _bins(of[name], links) for name in drawn}
    top = max(one.total / of[name].traces for name in drawn for one in bins[name])
    panels = (_panel(name, of[name], bins[name], top, colours[name], links) for name in drawn)
    columns = ("Domain", "Scored", "Cleared", "Share")
    if threshold is not None:
        columns = ("Domain", "Scored", "At or above", "Share")
    rows = (
        TableRow((name, f"{one.traces:,}", f"{one.above:,}", share(one.above, one.traces)), href)
        for name, one in of.items()
        for href in [links.runs(domain=name, sort="score")]
    )
    return Panels(finding, Table(columns, (*rows,)), *_PANEL, (*panels,))


def threshold_curve(scores: ScoreSlices, links: Links) -> Chart:
    """Draw the share that each threshold would let through, of all that may leave and by domain."""
    leaving, colours = scores.leaving, colours_of(scores.domains)
    if not leaving.traces:
        private = "every run with a score is private, and never leaves"
        return Chart(private if scores.traces else NO_SCORES)
    threshold = scores.threshold
    how = _OWN_BAR if threshold is None else f"reach {exact(threshold)}"
    finding = _how_many(leaving, how)
    of = {"all": leaving}
    if len(leaving.domains) > 1:
        of |= {name: leaving.of(name) for name in leaving.domains}
    names = [*of][: _MOST_CURVES + 1]
    if len(of) > len(names):
        finding += f"; the {_MOST_CURVES} most frequent of {len(of) - 1} domains are drawn"
    across, up = Scale(0, 1, 40, WIDTH - 4), Scale(0, 1, 216, 30)
    marks: list[Mark | Group] = []
    for percent in (0, 25, 50, 75, 100):
        y = up(percent / 100)
        marks.append(straight(40, y, WIDTH, y, "grid" if percent else "axis"))
        marks.append(Label(f"{percent} %", 34, y + 4, "end"))
    marks += _score_axis(across, 216)[1:]
    curves, keys = [], []
    for place, name in enumerate(names):
        look = _look(place, colours.get(name))
        href = links.runs(domain=name, sort="score") if place else None
        said = f"{name}: {part_of(of[name].above, of[name].traces)} now"
        curves.append(Group(said, (_curve(of[name], look, across, up),), href))
        text = f"{name} {share(of[name].above, of[name].traces)}"
        keys.append(Key(text, Line(((0, 0), (_SWATCH, 0)), look), href, _SWATCH))
    marks += reversed(curves)
    if threshold is not None:
        marks += threshold_line(f"threshold {exact(threshold)}", across(threshold), 22, 216)
    columns = ("Threshold", "Reach it", "Share", "Against now", *[*of][1:])
    table = Table(columns, (*_curve_rows([*of.values()], threshold),))
    return Plot(finding, table, 236, (*marks,), (*keys,))


def _bins(scores: ScoreSlices, links: Links) -> list[Column]:
    """Return the runs of each twentieth, below the threshold and above."""
    bins = []
    for start in range(0, 100, _BIN):
        inside = [
            one
            for one in scores.slices
            if start <= min(one.hundredth, 99) < start + _BIN  # a score of 1 is in the last
        ]
        total, above = sum(one.traces for one in inside), sum(one.above for one in inside)
        low, high = start / 100, (start + _BIN) / 100
        parts = {"below": total - above, "cleared": above} if total else {}
        said = f"{low:.2f} to {high:.2f}: {counted(total, 'trace')}"
        bins.append(Column(said, parts, links.runs(**score_filter(low, high))))
    return bins


def _how_many(scores: ScoreSlices, how: str) -> str:
    above, traces = scores.above, scores.traces
    return f"{part_of(above, traces)} {how} ({share(above, traces)})"


def _score_axis(across: Scale, y: float) -> list[Mark]:
    anchors: dict[int, Anchor] = {10: "end"} if across(1) > WIDTH - 6 else {}
    return [
        straight(across(0), y, WIDTH, y, "axis"),
        *(
            Label(f"{tenths / 10:g}", across(tenths / 10), y + 16, anchors.get(tenths, "middle"))
            for tenths in range(0, 11, 2)
        ),
    ]


def _both_sides(below: str, above: str, x: float) -> list[Mark]:
    """Write how many there are on each side of the threshold, where each side has room."""
    if x - 8 >= room_for(below) and x + 8 + room_for(above) <= WIDTH:
        return [Label(below, x - 8, 34, "end"), Label(above, x + 8, 34, "start", "strong")]
    both = f"{below}, {above}"
    return [Label(both, x - 8, 34, "end") if x > WIDTH / 2 else Label(both, x + 8, 34)]


def _panel(
    name: str,
    scores: ScoreSlices,
    bins: Sequence[Column],
    top: float,
    colour: str,
    links: Links,
) -> Panel:
    width, height = _PANEL
    across, up = Scale(0, len(bins), 0, width), Scale(0, top * scores.traces, height - 2, 2)
    room, threshold, marks = across(1), scores.threshold, list[Mark]()
    for place, one in enumerate(bins):
        marks += pile(one, across(place) + 0.5, room - 1, up)
    marks.append(straight(0, height - 2, width, height - 2, "axis"))
    where = "cleared"
    if threshold is not None:
        where, x = f"at or above {exact(threshold)}", across(threshold * len(bins))
        marks.append(straight(x, 0, x, height - 2, "threshold"))
    said = f"{name}: {part_of(scores.above, scores.traces)} {where}"
    amount = share(scores.above, scores.traces)
    return Panel(name, amount, said, colour, (*marks,), links.runs(domain=name, sort="score"))


def _look(place: int, colour: str | None) -> str:
    """Return the classes of a curve: its domain's colour, and dashes of its own."""
    dashes = f" kp-dash-{place - 1}" if place > 1 else ""
    return f"kp-curve kp-line-{colour if place else 'ink'}{dashes}"


def _curve(scores: ScoreSlices, look: str, across: Scale, up: Scale) -> Line:
    points = ((across(at / 100), up(scores.reaching(at) / scores.traces)) for at in range(101))
    return Line((*points,), look)


def _curve_rows(curves: Sequence[ScoreSlices], threshold: float | None) -> Iterator[TableRow]:
    """Yield rows in steps of 0.05 and the threshold in force, with the change against it."""
    steps = {hundredth / 100 for hundredth in range(0, 101, 5)}
    for step in sorted(steps if threshold is None else steps | {threshold}):
        is_now = step == threshold
        reach = [one.above if is_now else one.reaching(round(100 * step)) for one in curves]
        change = reach[0] - curves[0].above
        against = signed(change, 0) if change else "±0"
        shares = (share(some, one.traces) for some, one in zip(reach, curves, strict=True))
        first, *others = shares
        name = f"→ {in_hundredths(step)}" if is_now else in_hundredths(step)
        yield TableRow((name, f"{reach[0]:,}", first, against, *others))
