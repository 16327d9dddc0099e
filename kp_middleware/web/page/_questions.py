"""From what the file says to what the pictures draw."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from kp_middleware.storage import Funnel, MapPoint, ScoreSlices
from kp_middleware.views.thresholds import never_leave
from kp_middleware.web.page._links import Links
from kp_middleware.web.pictures import (
    CLEARED,
    LOSS,
    PLAIN,
    Bin,
    Curve,
    DomainBins,
    Markup,
    Picture,
    Spot,
    Stage,
    by_domain,
    colours_of,
    count,
    funnel,
    histogram,
    project,
    trace_map,
    what_if,
)

_BIN: Final = 5
_TITLE: Final = 64


def scores_picture(scores: ScoreSlices, links: Links) -> Picture:
    """All scores in steps of 0.05."""
    return histogram([*_bins(scores, links)], scores.threshold)


def domains_picture(scores: ScoreSlices, links: Links) -> Picture:
    """The same for each domain."""
    colours = colours_of(scores.domains)
    of_domains = [
        DomainBins(name, (*_bins(scores.of(name)),), colours[name], links.domain(name))
        for name in scores.domains
    ]
    return by_domain(of_domains, scores.threshold)


def what_if_picture(scores: ScoreSlices, links: Links) -> Picture:
    """The share that would be forwarded at each threshold, of all that may leave, by domain too."""
    colours, leaving = colours_of(scores.domains), scores.leaving
    if scores.traces and not leaving.traces:
        return Picture(Markup(), "every run with a score is private, and never leaves")
    curves = [_curve("all", "ink", leaving, None)]
    if len(leaving.domains) > 1:
        curves += [
            _curve(name, colours[name], leaving.of(name), links.domain(name))
            for name in leaving.domains
        ]
    return what_if(curves, scores.threshold)


def private_note(scores: ScoreSlices) -> str:
    """How many `what_if_picture` does not count, where there are any."""
    private = sum(one.traces for one in scores.private)
    return never_leave(private) if private else ""


def funnel_picture(found: Funnel, links: Links) -> Picture:
    """From recorded to sent, and what was lost."""
    codes: Counter[str] = Counter()
    for reason, number in found.reasons.items():
        codes[reason.partition(" at ")[0]] += number  # where it is, the trace's own page says
    reasons = ", ".join(f"{code} {count(number)}" for code, number in codes.most_common())
    stages = (
        ("recorded", found.recorded, PLAIN, ""),
        ("cleared", found.cleared, CLEARED, ""),
        ("queued", found.queued, CLEARED, ""),
        ("sent", found.sent, CLEARED, ""),
        ("blocked", found.blocked, LOSS, reasons),
        ("rejected", found.rejected, LOSS, ""),
    )
    return funnel(
        [
            Stage(name, number, colour, note, links.state(name) if number else None)
            for name, number, colour, note in stages
        ]
    )


def map_picture(points: Sequence[MapPoint], domains: Sequence[str], links: Links) -> Picture:
    """The newest traces on a plane."""
    projection = project([point.vector for point in points])
    spots = [*_spots(points, projection.places, domains, links)]
    return trace_map(
        spots,
        kept=projection.kept,
        links=_domain_links(domains, links),
        every=links.state("recorded"),
    )


def neighbours_picture(
    points: Sequence[MapPoint], domains: Sequence[str], links: Links, *, joined_with: Sequence[int]
) -> Picture:
    """The first of the points among the others, joined with these places."""
    projection = project([point.vector for point in points])
    spots = [*_spots(points, projection.places, domains, links)]
    return trace_map(
        spots, kept=projection.kept, linked=joined_with, links=_domain_links(domains, links)
    )


def _bins(scores: ScoreSlices, links: Links | None = None) -> Iterator[Bin]:
    for start in range(0, 100, _BIN):
        inside = [
            one
            for one in scores.slices
            if start <= min(one.hundredth, 99) < start + _BIN  # a score of 1 is in the last
        ]
        traces, above = sum(one.traces for one in inside), sum(one.above for one in inside)
        low, high = start / 100, (start + _BIN) / 100
        href = links.scores(low, high) if links and traces else None
        yield Bin(low, high, traces - above, above, href)


def _curve(name: str, colour: str, scores: ScoreSlices, href: str | None) -> Curve:
    reaching = tuple(scores.reaching(hundredth) for hundredth in range(101))
    return Curve(name, colour, reaching, scores.above, href)


def _spots(
    points: Sequence[MapPoint],
    places: Sequence[tuple[float, float]],
    domains: Sequence[str],
    links: Links,
) -> Iterator[Spot]:
    colours = colours_of({*domains, *(point.domain for point in points)})
    for point, (x, y) in zip(points, places, strict=True):
        score = "no score" if point.score is None else f"{point.score:.3f}"
        title = f"{_cut(point.objective)} ({point.domain}, {score})".strip()
        href = links.trace(point.id)
        yield Spot(x, y, title, point.domain, colours[point.domain], point.cleared, href)


def _cut(objective: str) -> str:
    """By its characters, not by their width: a map has 2,000 of them."""
    line = " ".join(objective[: 2 * _TITLE].split())
    return line if len(line) <= _TITLE else f"{line[:_TITLE]}…"


def _domain_links(domains: Sequence[str], links: Links) -> Mapping[str, str | None]:
    return {name: links.domain(name) for name in domains}
