"""What was removed? What redaction took out before sending, week by week."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from typing import Final, NamedTuple

from kp_middleware.web.pictures._legend import Key, legend
from kp_middleware.web.pictures._lettering import width
from kp_middleware.web.pictures._marks import SMALL, bar, label, rule, told
from kp_middleware.web.pictures._markup import Markup
from kp_middleware.web.pictures._palette import COLOURS, OTHER
from kp_middleware.web.pictures._picture import WIDTH, Line, Picture, drawing, empty
from kp_middleware.web.pictures._scale import Scale, ticks
from kp_middleware.web.pictures._wording import count, day

_TOP: Final = 10.0
_BOTTOM: Final = 160.0
_WEEKS: Final = 12
_WIDEST: Final = 26.0
_COLUMNS: Final = ("Week from", "Kind", "Removed")
_OTHERS: Final = "other kinds"


class Removed(NamedTuple):
    """How much of one kind was taken out in the week that begins on this Monday."""

    week: str
    kind: str
    times: int


def removals(removed: Sequence[Removed], *, nothing: str) -> Picture:
    """A bar for each week, stacked by kind.

    Args:
        removed: Of the twelve weeks up to the newest run.
        nothing: What is said where that is nothing.
    """
    totals: Counter[str] = Counter()
    weeks: dict[str, Counter[str]] = {}
    colours = _colours(removed)
    for one in removed:
        kind = one.kind if one.kind in colours else _OTHERS
        totals[kind] += one.times
        weeks.setdefault(one.week, Counter())[kind] += one.times
    if not totals:
        return empty(nothing)
    most, amount = totals.most_common(1)[0]
    finding = f"{count(totals.total())} removed in the {_WEEKS} weeks up to the newest run;"
    finding += f" most often {most}, {count(amount)} times"
    marks = ticks(max(week.total() for week in weeks.values()))
    left = max(width(count(int(tick)), size=SMALL) for tick in marks) + 8
    up = Scale(0, marks[-1], _BOTTOM, _TOP)
    shown = _weeks_up_to(max(weeks), since=min(weeks))
    across = Scale(0, len(shown), left, WIDTH)
    keys = [_key(kind, totals[kind], colours.get(kind, OTHER)) for kind, _ in totals.most_common()]
    entries, bottom = legend(keys, _BOTTOM + 26)
    svg = drawing(
        bottom,
        finding,
        *_grid(marks, up, left),
        *(
            _stack(week, weeks.get(week, Counter()), [*totals], colours, up, across, place)
            for place, week in enumerate(shown)
        ),
        rule(left, _BOTTOM, WIDTH, _BOTTOM, kind="axis"),
        *_dates(shown, across),
        *entries,
    )
    lines = (Line((one.week, one.kind, count(one.times))) for one in removed)
    return Picture(svg, finding, _COLUMNS, tuple(lines))


def _colours(removed: Sequence[Removed]) -> Mapping[str, str]:
    """By name, so that a kind keeps its colour while there are few kinds."""
    totals: Counter[str] = Counter()
    for one in removed:
        totals[one.kind] += one.times
    kinds = [kind for kind, _ in totals.most_common(len(COLOURS))]
    return dict(zip(sorted(kinds), COLOURS, strict=False))


def _weeks_up_to(last: str, *, since: str) -> list[str]:
    """All of them: a week without removals is a finding, too."""
    end, start = date.fromisoformat(last), date.fromisoformat(since)
    number = min(_WEEKS, (end - start).days // 7 + 1)
    return [(end - timedelta(weeks=back)).isoformat() for back in range(number - 1, -1, -1)]


def _grid(marks: Sequence[float], up: Scale, left: float) -> list[Markup]:
    return [
        mark
        for tick in marks
        for mark in (
            rule(left, up(tick), WIDTH, up(tick)),
            label(count(int(tick)), left - 6, up(tick) + 4, anchor="end", kind="quiet", size=SMALL),
        )
    ]


def _stack(
    week: str,
    counts: Counter[str],
    kinds: Sequence[str],
    colours: Mapping[str, str],
    up: Scale,
    across: Scale,
    place: int,
) -> Markup:
    room = across(1) - across(0)
    wide = min(_WIDEST, room * 0.7)
    x, reached, bars = across(place) + (room - wide) / 2, 0, []
    for kind in kinds:
        if counts[kind]:
            low, reached = reached, reached + counts[kind]
            height = max(up(low) - up(reached) - 1, 0.5)
            colour = colours.get(kind, OTHER)
            bars.append(bar(x, up(reached), wide, height, colour=colour, rounded=False))
    parts = ", ".join(f"{count(number)} {kind}" for kind, number in counts.most_common())
    return told(f"week from {week}: {parts or 'none'}", *bars)


def _dates(weeks: Sequence[str], across: Scale) -> list[Markup]:
    """As many as have room."""
    every = max(1, round(46 / (across(1) - across(0)) + 0.49))
    return [
        label(
            day(week, year=False),
            across(place + 0.5),
            _BOTTOM + 16,
            anchor="middle",
            kind="quiet",
            size=SMALL,
        )
        for place, week in enumerate(weeks)
        if (len(weeks) - 1 - place) % every == 0
    ]


def _key(kind: str, amount: int, colour: str) -> Key:
    mark = bar(1, -5, 10, 10, colour=colour)
    return Key(f"{kind} {count(amount)}", mark)
