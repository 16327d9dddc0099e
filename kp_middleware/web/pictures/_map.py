"""What kinds of work are there? Traces on a plane: like ones are near."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Final, NamedTuple

from kp_middleware.web.pictures._legend import Key, legend
from kp_middleware.web.pictures._marks import rule, told
from kp_middleware.web.pictures._markup import Markup, element
from kp_middleware.web.pictures._palette import COLOURS, OTHER
from kp_middleware.web.pictures._picture import WIDTH, Line, Picture, drawing, empty
from kp_middleware.web.pictures._scale import Scale
from kp_middleware.web.pictures._wording import count

_NOTHING: Final = "no map yet: it needs three runs that an embedder has seen"
_HIGH: Final = 270.0
_EDGE: Final = 10.0
_COLUMNS: Final = ("Domain", "Traces", "Cleared")
_MOST_TOLD: Final = 200
_HUNDRED: Final = 100
_SIZE: Final = 3.5
_KEY: Final = 5.0
_SIZES: Final = {"kp-cleared-spot": 5.5, "kp-this-spot": 7.0}
_SHAPES: Final[Mapping[str, str]] = {
    "blue": "m{r} 0a{r} {r} 0 1 1-{d} 0 {r} {r} 0 1 1 {d} 0z",
    "orange": "m-{r}-{r}h{d}v{d}h-{d}z",
    "green": "m0-{R}l{R} {h}h-{D}z",
    "purple": "m0-{R}l{R} {R}-{R} {R}-{R}-{R}z",
    "cyan": "m0 {R}l{R}-{h}h-{D}z",
    "olive": "m-{R}-{t}h{a}v-{a}h{T}v{a}h{a}v{T}h-{a}v{a}h-{T}v-{a}h-{a}z",
    "brown": "m-{R}-{t}h{D}v{T}h-{D}z",
    OTHER: "m-{t}-{R}h{T}v{D}h-{T}z",
}
"""From the middle of a spot on, in relative steps: so many make one path."""


class Spot(NamedTuple):
    """One trace on the map.

    Attributes:
        title: What it is, in words.
        colour: Of its domain; its shape follows.
        cleared: Whether the gate let it through.
        href: Where it leads; None means nowhere.
    """

    x: float
    y: float
    title: str
    domain: str
    colour: str
    cleared: bool
    href: str | None = None


def trace_map(
    spots: Sequence[Spot],
    *,
    kept: float,
    linked: Sequence[int] = (),
    links: Mapping[str, str | None] | None = None,
    every: str | None = None,
) -> Picture:
    """The traces, those that cleared larger and outlined.

    200 of them say what they are when pointed at, first those that lead somewhere and cleared: a
    link for each of 2,000 would be most of a page.

    Args:
        spots: The newest first.
        kept: Which part of the variance the plane shows, 0 to 1.
        linked: The places of those that are joined with the first, which then stands out.
        links: Where the domains in the legend lead.
        every: Where all of them are listed, for who cannot point at a spot; None means nowhere.
    """
    if len(spots) < 3:
        return empty(_NOTHING)
    spots = _fitted(spots)
    cleared = sum(spot.cleared for spot in spots)
    newest = f"The {count(len(spots))} newest traces, {count(cleared)} of them cleared"
    finding = f"{newest}; PCA of their vectors, {100 * kept:.0f} % of the variance{_opened(spots)}"
    if linked:
        finding = f"This trace among the {count(len(spots))} newest, joined with its nearest"
    keys = [_key(domain, colour, links or {}) for domain, colour in _domains(spots).items()]
    entries, bottom = legend(keys, _HIGH + 8)
    svg = drawing(bottom, finding, *_drawn(spots, linked), *entries)
    lines = [_all_of_them(spots, every), *_lines(spots, links or {})]
    return Picture(svg, finding, _COLUMNS, tuple(lines))


def _fitted(spots: Sequence[Spot]) -> list[Spot]:
    """Into the frame; one unit is as long up as across, or near would mean two things."""
    middle_x, middle_y = (
        (min(values) + max(values)) / 2
        for values in ([spot.x for spot in spots], [spot.y for spot in spots])
    )
    right, top = WIDTH / 2 - _EDGE, _HIGH / 2 - _EDGE
    reaches = (max(abs(spot.x - middle_x) / right, abs(spot.y - middle_y) / top) for spot in spots)
    reach = max(1e-9, *reaches)
    across = Scale(middle_x, middle_x + reach, WIDTH / 2, WIDTH / 2 + 1)
    up = Scale(middle_y, middle_y + reach, _HIGH / 2, _HIGH / 2 - 1)
    return [spot._replace(x=across(spot.x), y=up(spot.y)) for spot in spots]


def _told(spots: Sequence[Spot]) -> frozenset[int]:
    places = range(len(spots))
    ordered = sorted(places, key=lambda at: (spots[at].href is None, not spots[at].cleared))
    return frozenset(ordered[:_MOST_TOLD])


def _opened(spots: Sequence[Spot]) -> str:
    """Whoever points at a spot that leads nowhere should know why."""
    number = sum(spots[at].href is not None for at in _told(spots))
    return f"; {count(number)} of them can be opened" if 0 < number < len(spots) else ""


def _drawn(spots: Sequence[Spot], linked: Sequence[int]) -> Iterator[Markup]:
    """What stands out comes last, so that nothing covers it."""
    told = _told(spots)
    if not linked:
        for kind, cleared in (("kp-spot", False), ("kp-cleared-spot", True)):
            of = [at for at, spot in enumerate(spots) if spot.cleared == cleared]
            yield from _in_bulk([spots[at] for at in of if at not in told], kind)
            yield from (_spot(spots[at], kind) for at in of if at in told)
        return
    first, others = spots[0], [at for at in range(1, len(spots)) if at not in linked]
    yield from _in_bulk([spots[at] for at in others if at not in told], "kp-faint-spot")
    yield from (_spot(spots[at], "kp-faint-spot") for at in others if at in told)
    yield from (rule(first.x, first.y, spots[at].x, spots[at].y, kind="link") for at in linked)
    yield from (_spot(spots[at], "kp-cleared-spot") for at in linked)
    yield _spot(first, "kp-this-spot")


def _in_bulk(spots: Sequence[Spot], kind: str) -> Iterator[Markup]:
    """One path for all of a colour among a hundred, or one colour would cover all others."""
    for start in range(0, len(spots), _HUNDRED):
        some = spots[start : start + _HUNDRED]
        for colour in dict.fromkeys(spot.colour for spot in some):
            outlines = (_outline(spot, kind) for spot in some if spot.colour == colour)
            yield _path("".join(outlines), kind, colour)


def _spot(spot: Spot, kind: str) -> Markup:
    return told(spot.title, _path(_outline(spot, kind), kind, spot.colour), href=spot.href)


def _path(outline: str, kind: str, colour: str) -> Markup:
    return element("path", d=outline, class_=f"{kind} kp-{colour}")


def _outline(spot: Spot, kind: str) -> str:
    return f"M{spot.x:.1f} {spot.y:.1f}{_shape(spot.colour, _SIZES.get(kind, _SIZE))}"


@cache
def _shape(colour: str, size: float) -> str:
    r, R, t = (round(size * part, 1) for part in (0.88, 1.15, 0.4))  # noqa: N806 - the wider one
    lengths = {"r": r, "d": 2 * r, "R": R, "D": 2 * R, "h": R + r, "t": t, "T": 2 * t, "a": R - t}
    return _SHAPES[colour].format_map({name: f"{each:.3g}" for name, each in lengths.items()})


def _domains(spots: Sequence[Spot]) -> Mapping[str, str]:
    """In the order of the palette; those without a colour of their own are one entry."""
    order = [*COLOURS, OTHER]
    named = {spot.domain if spot.colour != OTHER else "others": spot.colour for spot in spots}
    return dict(sorted(named.items(), key=lambda item: (order.index(item[1]), item[0])))


def _key(domain: str, colour: str, links: Mapping[str, str | None]) -> Key:
    mark = _path(f"M6 0{_shape(colour, _KEY)}", "kp-spot", colour)
    return Key(domain, mark, links.get(domain))


def _all_of_them(spots: Sequence[Spot], href: str | None) -> Line:
    cleared = sum(spot.cleared for spot in spots)
    return Line(("all of them, the newest first", count(len(spots)), count(cleared)), href)


def _lines(spots: Sequence[Spot], links: Mapping[str, str | None]) -> list[Line]:
    lines = []
    for domain in _domains(spots):
        of = [
            spot
            for spot in spots
            if domain in {spot.domain, "others" if spot.colour == OTHER else None}
        ]
        cells = (domain, count(len(of)), count(sum(spot.cleared for spot in of)))
        lines.append(Line(cells, links.get(domain)))
    return lines
