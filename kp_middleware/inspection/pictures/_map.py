"""What kinds of work are there? Traces on a plane: like ones are near."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final, NamedTuple

from kp_middleware.inspection.pictures._legend import Key, legend
from kp_middleware.inspection.pictures._marks import rule, told
from kp_middleware.inspection.pictures._markup import Markup
from kp_middleware.inspection.pictures._palette import COLOURS, OTHER
from kp_middleware.inspection.pictures._picture import WIDTH, Line, Picture, drawing, empty
from kp_middleware.inspection.pictures._scale import Scale
from kp_middleware.inspection.pictures._wording import count

_NOTHING: Final = "no map yet: it needs three runs that an embedder has seen"
_HIGH: Final = 270.0
_EDGE: Final = 10.0
_COLUMNS: Final = ("Domain", "Traces", "Cleared")
_SHAPES: Final[Mapping[str, str]] = {
    "blue": "M{r} 0A{r} {r} 0 1 1 -{r} 0A{r} {r} 0 1 1 {r} 0Z",
    "orange": "M-{r} -{r}H{r}V{r}H-{r}Z",
    "green": "M0 -{R}L{R} {r}H-{R}Z",
    "purple": "M0 -{R}L{R} 0L0 {R}L-{R} 0Z",
    "cyan": "M0 {R}L{R} -{r}H-{R}Z",
    "olive": "M-{R} -{t}H-{t}V-{R}H{t}V-{t}H{R}V{t}H{t}V{R}H-{t}V{t}H-{R}Z",
    "brown": "M-{R} -{t}H{R}V{t}H-{R}Z",
    OTHER: "M-{t} -{R}H{t}V{R}H-{t}Z",
}


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
    finding = f"{newest}; PCA of their vectors, {100 * kept:.0f} % of the variance"
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


def _drawn(spots: Sequence[Spot], linked: Sequence[int]) -> list[Markup]:
    """What stands out comes last, so that nothing covers it."""
    if not linked:
        ordered = sorted(spots, key=lambda spot: spot.cleared)
        return [_spot(spot, "kp-cleared-spot" if spot.cleared else "kp-spot") for spot in ordered]
    named = {0, *linked}
    first = spots[0]
    return [
        *(_spot(spot, "kp-faint-spot") for at, spot in enumerate(spots) if at not in named),
        *(rule(first.x, first.y, spots[at].x, spots[at].y, kind="link") for at in linked),
        *(_spot(spots[at], "kp-cleared-spot") for at in linked),
        _spot(first, "kp-this-spot", radius=7),
    ]


def _spot(spot: Spot, kind: str, *, radius: float = 0) -> Markup:
    size = radius or (5.5 if kind == "kp-cleared-spot" else 3.5)
    placed = _shape(spot.colour, size, kind, at=(spot.x, spot.y))
    return told(spot.title, placed, href=spot.href)


def _shape(colour: str, size: float, kind: str, *, at: tuple[float, float]) -> Markup:
    """Put together by hand, of our own words alone: a map has 2,000 of them."""
    move = f"translate({at[0]:.1f} {at[1]:.1f})"
    return Markup(
        f'<path d="{_path(colour, size)}" transform="{move}" class="{kind} kp-{colour}"/>'
    )


@cache
def _path(colour: str, size: float) -> str:
    return _SHAPES[colour].format(r=f"{size * 0.88:g}", R=f"{size * 1.15:g}", t=f"{size * 0.4:g}")


def _domains(spots: Sequence[Spot]) -> Mapping[str, str]:
    """In the order of the palette; those without a colour of their own are one entry."""
    order = [*COLOURS, OTHER]
    named = {spot.domain if spot.colour != OTHER else "others": spot.colour for spot in spots}
    return dict(sorted(named.items(), key=lambda item: (order.index(item[1]), item[0])))


def _key(domain: str, colour: str, links: Mapping[str, str | None]) -> Key:
    return Key(domain, _shape(colour, 5, "kp-spot", at=(6, 0)), links.get(domain))


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
