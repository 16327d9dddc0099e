"""SVG marks of charts, and the Jinja2 environment that renders them."""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import chain, count, repeat
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from kp_middleware.views.wording import minute, sentence, short_id

__all__ = ["COLOURS", "DOMAINS", "OTHER", "SHAPES", "SIGNAL_COLOURS", "WIDTH", "BarRow",
           "BarSegment", "Chart", "Column", "Key", "Links", "Mark", "Point", "Table", "TableRow",
           "bar", "colours_of", "dot", "frame", "grid", "group", "label", "line", "polyline",
           "prepare_templates", "render", "scale", "stacked", "threshold_line"]  # fmt: skip

WIDTH: Final = 360.0
"""The width of a plot in its own px, that of a phone; wider screens stretch it."""

SIGNAL_COLOURS: Final[Mapping[str, str]] = {
    "complexity": "blue",
    "novelty": "orange",
    "tool_diversity": "green",
    "outcome_confidence": "purple",
}
SHAPES: Final[Mapping[str, str]] = {
    "blue": "M.9 0c0 1.2-1.8 1.2-1.8 0s1.8-1.2 1.8 0z",
    "orange": "M-.9-.9h1.8v1.8h-1.8z",
    "green": "M0-1.2l1.2 2h-2.4z",
    "purple": "M0-1.2l1.2 1.2-1.2 1.2-1.2-1.2z",
    "cyan": "M0 1.2l1.2-2h-2.4z",
    "olive": "M-1.2-.4h.8v-.8h.8v.8h.8v.8h-.8v.8h-.8v-.8h-.8z",
    "brown": "M-1.2-.4h2.4v.8h-2.4z",
    "grey": "M-.4-1.2h.8v2.4h-.8z",
}
"""The dot of each color, centered on 0; shapes differ for the color-blind."""
*COLOURS, OTHER = SHAPES
"""Colors for unordered categories, and the color of all others."""
DOMAINS: Final = ("code", "customer_service", "finance", "general", "medical")
"""The protocol's domains, which always have the first colors."""

_COLUMN_FILL: Final = 0.8  # of the width of its slot
_CHAR_WIDTH: Final = 7.2  # px: enough for our digits and labels; user texts are HTML
_NUMBER: Final = re.compile(r"(?:[<>+−±]?[\d,.]+(?:%|\s(?:ms|s|min \d+\ss|[A-Z]{3}))?|–)?")

Point: TypeAlias = tuple[float, float]
Scale: TypeAlias = Callable[[float], float]


class Links(Protocol):
    """The link targets of a page; None means no link."""

    def trace(self, trace_id: str, /) -> str | None: ...

    def runs(self, **filters: str) -> str | None: ...


class Mark(NamedTuple):
    """An SVG element; put user texts only into ``title``, the tooltip."""

    tag: str
    attributes: Mapping[str, str | float]
    text: str = ""
    title: str = ""
    inside: tuple["Mark", ...] = ()


def polyline(points: Iterable[Point], style: str, tag: str = "polyline") -> Mark:
    places = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return Mark(tag, {"points": places, "fill": "none", "class": style})


def line(x1: float, y1: float, x2: float, y2: float, style: str = "grid") -> Mark:
    return polyline(((x1, y1), (x2, y2)), f"kp-{style}")


def bar(place: Point, width: float, height: float, colour: str) -> Mark:
    size = {"x": place[0], "y": place[1], "width": width, "height": height}
    return Mark("rect", {**size, "class": f"kp-{colour}"})


def dot(place: Point, radius: float, colour: str, style: str = "spot") -> Mark:
    """Return a dot in the shape of its color."""
    where = f"translate({place[0]:.1f} {place[1]:.1f}) scale({radius:g})"
    look = f"kp-{style} kp-{colour}"
    return Mark("path", {"d": SHAPES[colour], "transform": where, "class": look})


def label(text: str, x: float, y: float, anchor: str = "start", style: str = "quiet") -> Mark:
    """Return a short text on its baseline; ``anchor`` is start, middle or end."""
    return Mark("text", {"x": x, "y": y, "text-anchor": anchor, "class": f"kp-{style}"}, text)


def group(title: str, marks: Iterable[Mark], href: str | None = None) -> Mark:
    """Return marks with a tooltip and an optional link, which the table below also has."""
    link: dict[str, str | float] = {} if href is None else {"href": href, "tabindex": -1}
    return Mark("a" if link else "g", link, title=title, inside=(*marks,))


class TableRow(NamedTuple):
    cells: tuple[str, ...]
    href: str | None = None


class Table(NamedTuple):
    columns: Sequence[str] = ()
    rows: Sequence[TableRow] = ()

    @property
    def numeric(self) -> tuple[bool, ...]:
        """Return whether each column holds only numbers; the first never counts."""
        return tuple(
            place > 0 and all(_NUMBER.fullmatch(row.cells[place]) for row in self.rows)
            for place in range(len(self.columns))
        )


class Key(NamedTuple):
    """A legend entry; its mark begins at x = 0, centered on y = 0."""

    text: str
    mark: Mark
    href: str | None = None
    width: float = 12.0


class BarSegment(NamedTuple):
    """A segment of a horizontal bar, in percent of the full width."""

    start: float
    width: float
    colour: str


class BarRow(NamedTuple):
    """A horizontal bar with its name, amount and explanation; a long name is truncated."""

    name: str
    amount: str
    working: str = ""
    segments: tuple[BarSegment, ...] = ()
    href: str | None = None


class Chart(NamedTuple):
    """A chart with a caption, or the reason why it is empty; and the same data as a table.

    Either horizontal ``bars`` with an optional ``threshold`` in percent; or SVG ``marks``.
    """

    caption: str
    table: Table = Table()
    bars: Sequence[BarRow] = ()
    threshold: float | None = None
    threshold_name: str = ""
    axis: Sequence[str] = ()
    marks: Sequence[Mark] = ()
    height: float = 0.0
    legend: Sequence[Key] = ()

    @property
    def is_drawn(self) -> bool:
        return bool(self.bars or self.marks)


def scale(low: float, high: float, start: float, end: float) -> Scale:
    by = (end - start) / ((high - low) or 1)
    return lambda value: start + (value - low) * by


def ticks(top: float, *, most: int = 4) -> list[int]:
    """Return round numbers from 0 up to at least ``top``, in at most ``most`` steps.

    >>> ticks(83), ticks(3), ticks(0)
    ([0, 25, 50, 75, 100], [0, 1, 2, 3], [0, 1])
    """
    steps = (10**power * tenths // 10 for power in count() for tenths in (10, 20, 25, 50))
    step = next(step for step in steps if step * most >= top)
    return [*range(0, max(1, -int(-top // step)) * step + 1, step)]


class Column(NamedTuple):
    """A stacked column: its tooltip, and the amount of each color from the bottom."""

    title: str
    parts: Mapping[str, int]
    href: str | None = None


def stacked(
    columns: Sequence[Column], labels: Mapping[int, str], *, height: float, top: float = 10
) -> tuple[list[Mark], Scale]:
    """Draw stacked columns over a grid of counts, with labels by place; return the x scale, too."""
    counts = ticks(max(sum(column.parts.values()) for column in columns))
    left, bottom = len(f"{counts[-1]:,}") * _CHAR_WIDTH + 8, height - 22
    across, up = scale(0, len(columns), left, WIDTH - 8), scale(0, counts[-1], bottom, top)
    marks, slot = grid(up, left, {tick: f"{tick:,}" for tick in counts}), across(1) - left
    for place, column in enumerate(columns):
        if not any(column.parts.values()):
            continue
        bars = [bar((across(place), top), slot, bottom - top, "hit")]  # easy to point at
        x, reached = across(place) + slot * (1 - _COLUMN_FILL) / 2, 0
        for colour, amount in column.parts.items():
            if amount:  # at least half a pixel high
                low, reached = reached, reached + amount
                high = max(up(low) - up(reached), 0.5)
                bars.append(bar((x, up(reached)), slot * _COLUMN_FILL, high, colour))
        marks.append(group(column.title, bars, column.href))
    for at, text in labels.items():
        marks.append(label(text, across(at), height - 5, _anchor(across(at), text)))
    return marks, across


def grid(up: Scale, left: float, names: Mapping[float, str]) -> list[Mark]:
    """Draw a horizontal line at each value, an axis at 0."""
    marks = []
    for value, name in names.items():
        marks.append(line(left, up(value), WIDTH, up(value), "grid" if value else "axis"))
        marks.append(label(name, left - 6, up(value) + 4, "end"))
    return marks


def threshold_line(name: str, x: float, top: float, bottom: float) -> list[Mark]:
    drawn = line(x, top, x, bottom, "threshold")
    return [drawn, label(name, x, top - 8, _anchor(x, name), "loss")]


def _anchor(x: float, text: str) -> str:
    if min(x, WIDTH - x) < len(text) * _CHAR_WIDTH / 2:
        return "start" if x < WIDTH / 2 else "end"
    return "middle"


def colours_of(domains: Iterable[str]) -> Mapping[str, str]:
    """Assign each domain a color; those of the protocol's domains are fixed."""
    names = {*domains}
    theirs = {name: colour for name, colour in zip(DOMAINS, COLOURS, strict=False) if name in names}
    by_turns = dict.fromkeys((*COLOURS[len(DOMAINS) :], *COLOURS))
    left = chain((colour for colour in by_turns if colour not in theirs.values()), repeat(OTHER))
    return theirs | dict(zip(sorted(names - {*DOMAINS}), left, strict=False))


_UNSAFE: Final = re.compile(
    "[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"  # not allowed in XML
    "|[\u202a-\u202e\u2066-\u2069]"  # would reverse the surrounding text
)


def render(template: str, **values: object) -> Markup:
    """Render a template; the result is well-formed XML, too."""
    return Markup(_environment().get_template(template).render(values))  # noqa: S704 - escaped


def prepare_templates() -> None:
    for name in _environment().list_templates(extensions=["html"]):
        _environment().get_template(name)
    frame()


@cache
def frame() -> Template:
    """Return the page frame, async because Datasette renders it so."""
    return _environment().overlay(enable_async=True).get_template("frame.html")


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("kp_middleware", "web/templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_replace_unsafe,
    )
    environment.filters.update(
        count="{:,}".format,
        entries=lambda value: value.items() if isinstance(value, dict) else enumerate(value),
        parsed=_parse_json,
        minute=minute,
        px=lambda length: f"{round(length, 2):g}",
        sentence=sentence,
        short_id=short_id,
    )
    return environment


def _parse_json(text: str) -> Any:
    if text[:1] not in "{[":
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _replace_unsafe(value: Any) -> Any:
    """Replace characters that are unsafe even when escaped."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return _UNSAFE.sub("\N{REPLACEMENT CHARACTER}", value)
    return value
