"""The marks of charts (bars, lines, bands, dots, labels), and the templates that draw them."""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import zip_longest
from typing import Any, ClassVar, Final, Literal, NamedTuple, Protocol, TypeAlias

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from kp_middleware.views.wording import minute, sentence, short_id

Anchor: TypeAlias = Literal["start", "middle", "end"]

WIDTH: Final = 360.0
"""Of a plot, in its own px: as wide as a phone, and stretched where there is more room."""

SIGNAL_COLOURS: Final[Mapping[str, str]] = {
    "complexity": "blue",
    "novelty": "orange",
    "tool_diversity": "green",
    "outcome_confidence": "purple",
}
COLOURS: Final = ("blue", "orange", "green", "purple", "cyan", "olive", "brown")
"""For kinds without an order; told apart also without seeing red or green."""
OTHER: Final = "grey"
DOMAINS: Final = ("code", "customer_service", "finance", "general", "medical")
"""The protocol's own, which always have the first colours."""

_FILLS: Final = 0.8  # of its room by a column
_CHARACTER: Final = 7.2  # px: enough for digits and short words of ours; texts of users are HTML
_NUMBER: Final = re.compile(r"(?:[<>+−±]?[\d,.]+(?:\s(?:%|ms|s|min \d+\ss|[A-Z]{3}))?)?")


class Links(Protocol):
    """Addresses of what a page shows; None means that it leads nowhere."""

    def trace(self, trace_id: str, /) -> str | None:
        """Return the address of one run."""

    def runs(self, **filters: str) -> str | None:
        """Return that of the runs that match, with the filters that the page of runs knows."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A filled rectangle."""

    kind: ClassVar[str] = "bar"
    x: float
    y: float
    width: float
    height: float
    colour: str


@dataclass(frozen=True, slots=True)
class Line:
    """A line through points; ``look`` is one or more classes of the style sheet."""

    kind: ClassVar[str] = "line"
    points: tuple[tuple[float, float], ...]
    look: str


@dataclass(frozen=True, slots=True)
class Band:
    """The area between two lines, given as the points around it."""

    kind: ClassVar[str] = "band"
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Dot:
    """One or many dots in one path."""

    kind: ClassVar[str] = "dot"
    path: str
    look: str


@dataclass(frozen=True, slots=True)
class Label:
    """A short text of ours on its base line."""

    kind: ClassVar[str] = "label"
    text: str
    x: float
    y: float
    anchor: Anchor = "start"
    look: str = "quiet"


Mark: TypeAlias = Bar | Line | Band | Dot | Label


@dataclass(frozen=True, slots=True)
class Group:
    """Marks that say what they are when pointed at, and may lead somewhere."""

    kind: ClassVar[str] = "group"
    title: str
    marks: tuple[Mark, ...]
    href: str | None = None


class TableRow(NamedTuple):
    """A row of a table; its first cell leads to ``href``."""

    cells: tuple[str, ...]
    href: str | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text under their columns."""

    columns: tuple[str, ...] = ()
    rows: tuple[TableRow, ...] = ()

    @property
    def numeric(self) -> tuple[bool, ...]:
        """The columns that hold only numbers; never the first."""
        return tuple(
            place > 0 and all(_NUMBER.fullmatch(row.cells[place]) for row in self.rows)
            for place in range(len(self.columns))
        )


@dataclass(frozen=True, slots=True)
class Chart:
    """The base class of charts: the finding, or why nothing is drawn; and the same as a table."""

    kind: ClassVar[str] = ""
    finding: str
    table: Table = Table()


class Key(NamedTuple):
    """An entry of a legend: its mark, drawn from 0 to the right and around 0, and what it means."""

    text: str
    mark: Mark
    href: str | None = None
    width: float = 12.0


@dataclass(frozen=True, slots=True)
class Plot(Chart):
    """Marks on a plane, and what their colours mean."""

    kind: ClassVar[str] = "plot"
    height: float = 0.0
    marks: tuple[Mark | Group, ...] = ()
    legend: tuple[Key, ...] = ()

    @property
    def is_linked(self) -> bool:
        """Whether any mark leads somewhere: then a screen reader must not take it for one image."""
        return any(isinstance(mark, Group) and mark.href for mark in self.marks)


class Piece(NamedTuple):
    """A part of a horizontal bar, in percent of the whole width."""

    start: float
    width: float
    colour: str


class BarRow(NamedTuple):
    """One horizontal bar: its name, its amount, and how that came about; a long name is cut."""

    name: str
    amount: str
    working: str = ""
    pieces: tuple[Piece, ...] = ()
    href: str | None = None


@dataclass(frozen=True, slots=True)
class BarList(Chart):
    """Horizontal bars, each under its name; a threshold (in percent) crosses them all."""

    kind: ClassVar[str] = "bars"
    bars: tuple[BarRow, ...] = ()
    threshold: float | None = None
    threshold_name: str = ""
    axis: tuple[str, ...] = ()


class Scale(NamedTuple):
    """Maps ``low`` to ``start`` and ``high`` to ``end``, in px.

    >>> Scale(0, 10, 300, 100)(5)
    200.0
    """

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Return the place of a value."""
        if self.high == self.low:
            return self.start
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


def ticks(top: float, *, most: int = 4) -> list[int]:
    """Return round numbers from 0 to the first not below ``top``, in at most ``most`` steps.

    >>> ticks(83), ticks(3), ticks(0)
    ([0, 25, 50, 75, 100], [0, 1, 2, 3], [0, 1])
    """
    least = top / most
    power = 10 ** max(0, math.floor(math.log10(least)) if least > 0 else 0)
    steps = (power * tenths // 10 for tenths in (10, 20, 25, 50, 100) if power * tenths % 10 == 0)
    step = next(step for step in steps if step * most >= top)
    return [step * number for number in range(max(1, math.ceil(top / step)) + 1)]


def straight(x1: float, y1: float, x2: float, y2: float, look: str = "grid") -> Line:
    """Return a line between two points."""
    return Line(((x1, y1), (x2, y2)), f"kp-{look}")


def room_for(text: str) -> float:
    """Return the px that a number or a short word of ours takes at most."""
    return len(text) * _CHARACTER


class Column(NamedTuple):
    """A stacked column: the amount of each colour from the bottom, and what it says."""

    title: str
    parts: Mapping[str, int]
    href: str | None = None

    @property
    def total(self) -> int:
        """The amounts of all colours."""
        return sum(self.parts.values())


def stacked(
    columns: Sequence[Column],
    labels: Iterable[Label],
    *,
    height: float,
    top: float = 10,
) -> tuple[list[Mark | Group], Scale]:
    """Draw stacked columns over a grid of counts; return the marks, and the scale across.

    The ``x`` of labels counts columns from the left.
    """
    grid = ticks(max(one.total for one in columns))
    left, bottom = room_for(f"{grid[-1]:,}") + 8, height - 22
    across, up = Scale(0, len(columns), left, WIDTH - 8), Scale(0, grid[-1], bottom, top)
    marks: list[Mark | Group] = [straight(left, up(tick), WIDTH, up(tick)) for tick in grid[1:]]
    marks += [Label(f"{tick:,}", left - 6, up(tick) + 4, "end") for tick in grid]
    room = across(1) - left
    for place, one in enumerate(columns):
        if one.parts:
            whole = Bar(across(place), top, room, bottom - top, "hit")  # easy to point at
            x, bars, reached = across(place) + room * (1 - _FILLS) / 2, [whole], 0
            for colour, amount in one.parts.items():
                if amount:  # what is there is at least half a pixel high
                    low, reached = reached, reached + amount
                    high = max(up(low) - up(reached), 0.5)
                    bars.append(Bar(x, up(reached), room * _FILLS, high, colour))
            marks.append(Group(one.title, (*bars,), one.href))
    marks.append(straight(left, bottom, WIDTH, bottom, "axis"))
    marks += [replace(label, x=across(label.x), y=height - 5) for label in labels]
    return marks, across


def threshold_line(name: str, x: float, top: float, bottom: float) -> list[Mark]:
    """Draw the threshold with its name above it, on the side where it has room."""
    anchor: Anchor = "middle"
    if min(x, WIDTH - x) < room_for(name) / 2:
        anchor = "start" if x < WIDTH / 2 else "end"
    return [straight(x, top, x, bottom, "threshold"), Label(name, x, top - 8, anchor, "loss")]


def colours_of(domains: Iterable[str]) -> Mapping[str, str]:
    """Give each domain its colour: the protocol's own always have theirs, others what is left.

    >>> colours_of(["law", "code"])
    {'code': 'blue', 'law': 'olive'}
    """
    names = set(domains)
    own = sorted(names - set(DOMAINS))
    theirs = dict(zip(DOMAINS, COLOURS, strict=False))
    left = [*COLOURS[len(DOMAINS) :], *(theirs[name] for name in DOMAINS if name not in names)]
    known = {name: colour for name, colour in theirs.items() if name in names}
    return known | dict(zip_longest(own, left[: len(own)], fillvalue=OTHER))


_HARMFUL: Final = re.compile(
    "[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"  # what XML does not know
    "|[\u202a-\u202e\u2066-\u2069]"  # what would turn the words around it
)


def render(template: str, **values: object) -> Markup:
    """Render one of our templates, well-formed as XML, too."""
    return Markup(_environment().get_template(template).render(values))  # noqa: S704 - escaped


def prepare_templates() -> None:
    """Compile all templates, so that the first page has not to."""
    for name in _environment().list_templates(extensions=["html"]):
        _environment().get_template(name)
    frame()


@cache
def frame() -> Template:
    """Return the frame around a page for Datasette, which renders asynchronously."""
    return _environment().overlay(enable_async=True).get_template("frame.html")


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("kp_middleware", "web/templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_harmless,
    )
    environment.filters.update(
        count="{:,}".format,
        entries=lambda value: value.items() if isinstance(value, dict) else enumerate(value),
        parsed=_parsed,
        minute=minute,
        px=lambda length: f"{round(length, 2):g}",
        sentence=sentence,
        short_id=short_id,
    )
    return environment


def _parsed(text: str) -> Any:
    """Return a JSON object or array, to unfold it; None for another text."""
    if text[:1] not in "{[":
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _harmless(value: Any) -> Any:
    """Replace what could harm the page, also after escaping."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return _HARMFUL.sub("\N{REPLACEMENT CHARACTER}", value)
    return value
