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
    BarList,
    BarRow,
    Chart,
    Column,
    Group,
    Key,
    Label,
    Line,
    Links,
    Mark,
    Piece,
    Plot,
    Scale,
    Table,
    TableRow,
    colours_of,
    stacked,
    straight,
    threshold_line,
)

NO_SCORES: Final = "no scored runs yet: record a run, and it is here a moment after it has ended"
_OWN_BAR: Final = "cleared the bar of their own run"
_BIN: Final = 5  # hundredths
_MOST_BARS: Final = 8
_MOST_CURVES: Final = 7
_SWATCH: Final = 28.0  # room for more than one of the dashes


def score_histogram(scores: ScoreSlices, links: Links) -> Chart:
    """Draw all scores in steps of 0.05, and the threshold where one is fixed."""
    if not scores.traces:
        return Chart(NO_SCORES)
    threshold = scores.threshold
    where = _OWN_BAR if threshold is None else f"at or above {exact(threshold)}"
    columns = _bins(scores, links)
    labels = [Label(f"{tenths / 10:g}", 2 * tenths, 0, "middle") for tenths in range(0, 11, 2)]
    marks, across = stacked(columns, labels, height=208, top=34)
    if threshold is not None:
        x = across(threshold * len(columns))
        marks += threshold_line(f"threshold {exact(threshold)}", x, 22, 186)
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
    """Draw which part of the runs of each domain reaches the threshold."""
    if not scores.domains:
        return Chart(NO_SCORES)
    threshold, of = scores.threshold, {name: scores.of(name) for name in scores.domains}
    best = max(of, key=lambda name: of[name].above / of[name].traces)
    what = "clears its bar" if threshold is None else f"reaches {exact(threshold)}"
    often = share(of[best].above, of[best].traces)
    finding = f"{best} {what} most often: {often} of {of[best].traces:,}"
    if len(of) > _MOST_BARS:
        finding += f"; the {_MOST_BARS} most frequent of {len(of)} are drawn"
    colours = colours_of(scores.domains)
    bars, rows = [], []
    for name, one in of.items():
        href, part = links.runs(domain=name, sort="score"), share(one.above, one.traces)
        rows.append(TableRow((name, f"{one.traces:,}", f"{one.above:,}", part), href))
        piece = Piece(0, 100 * one.above / one.traces, colours[name])
        bars.append(BarRow(name, part, part_of(one.above, one.traces), (piece,), href))
    columns = ("Domain", "Scored", "Cleared" if threshold is None else "At or above", "Share")
    return BarList(finding, Table(columns, (*rows,)), (*bars[:_MOST_BARS],))


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
        said = f"{low:.2f} to {high:.2f}: {counted(total, 'run')}"
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
