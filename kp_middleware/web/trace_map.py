"""The map of runs, where similar ones are near, and the runs most similar to one."""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final, NamedTuple, Self

from kp_middleware.storage import MOST_POINTS, MapPoint
from kp_middleware.views.wording import shortened
from kp_middleware.web.marks import (
    COLOURS,
    OTHER,
    WIDTH,
    Chart,
    Key,
    Links,
    Mark,
    Table,
    TableRow,
    colours_of,
    group,
    straight,
)

_HEIGHT: Final = 270.0
_EDGE: Final = 10.0
_TITLE: Final = 64
_MOST_ALIKE: Final = 6
_MOST_DRAWN: Final = 400
_ROUNDS: Final = 40
_SIZES: Final = {"kp-spot": 3.5, "kp-faint-spot": 3.5, "kp-cleared-spot": 5.5, "kp-this-spot": 7.0}
_SHAPES: Final[Mapping[str, str]] = {
    "blue": "m.9 0c0 1.2-1.8 1.2-1.8 0s1.8-1.2 1.8 0z",
    "orange": "m-.9-.9h1.8v1.8h-1.8z",
    "green": "m0-1.2l1.2 2h-2.4z",
    "purple": "m0-1.2l1.2 1.2-1.2 1.2-1.2-1.2z",
    "cyan": "m0 1.2l1.2-2h-2.4z",
    "olive": "m-1.2-.4h.8v-.8h.8v.8h.8v.8h-.8v.8h-.8v-.8h-.8z",
    "brown": "m-1.2-.4h2.4v.8h-2.4z",
    OTHER: "m-.4-1.2h.8v2.4h-.8z",
}
"""From the middle of a spot of radius 1."""


class MostAlike(NamedTuple):
    """A run, those most like it, then others; their similarities, and among how many they are."""

    points: tuple[MapPoint, ...] = ()
    similarities: tuple[float, ...] = ()
    compared: int = 0

    @classmethod
    def among(cls, points: Sequence[MapPoint]) -> Self:
        """Find the six most like the first, as `History.points` gives them around a run."""
        import numpy as np

        if len(points) < 2:
            return cls()
        vectors = b"".join(point.vector for point in points)
        matrix = np.frombuffer(vectors, dtype="<f4").reshape(len(points), -1)
        cosines = matrix[1:] @ matrix[0]
        near = [int(at) for at in np.argsort(-cosines, kind="stable")[:_MOST_ALIKE]]
        others = (point for at, point in enumerate(points[1:]) if at not in near)
        found = (points[0], *(points[at + 1] for at in near), *others)
        return cls(found, tuple(float(cosines[at]) for at in near), len(points) - 1)

    @property
    def are_all(self) -> bool:
        """True if the run was compared with all others, not only with the newest."""
        return self.compared < MOST_POINTS - 1


class _Spot(NamedTuple):
    x: float
    y: float
    point: MapPoint
    colour: str
    href: str | None

    def drawn(self, look: str) -> Mark:
        score = "no score" if self.point.score is None else f"{self.point.score:.3f}"
        title = f"{shortened(self.point.objective, _TITLE)} ({self.point.domain}, {score})"
        path = f"M{self.x:.1f} {self.y:.1f}{_shape(self.colour, _SIZES[look])}"
        spot = Mark("path", {"d": path, "class": f"{look} kp-{self.colour}"})
        return group(title, (spot,), self.href)


def trace_map(
    points: Sequence[MapPoint], domains: Sequence[str], links: Links, *, nearest: int = 0
) -> Chart:
    """Draw the 400 newest runs by their vectors, or the first joined with those after it."""
    if len(points) < 3:
        return Chart("no map yet: it needs three runs that an embedder has seen")
    points = points[:_MOST_DRAWN]
    places, kept = project([point.vector for point in points])
    colours = colours_of({*domains, *(point.domain for point in points)})
    spots = [
        _Spot(x, y, point, colours[point.domain], links.trace(point.id))
        for point, (x, y) in zip(points, _fitted(places), strict=True)
    ]
    cleared = sum(point.cleared for point in points)
    if nearest:
        finding = f"This run among the {len(spots):,} newest, joined with its nearest"
        first, near = spots[0], spots[1 : nearest + 1]
        marks = [spot.drawn("kp-faint-spot") for spot in spots[nearest + 1 :]]
        marks += [straight(first.x, first.y, spot.x, spot.y, "link") for spot in near]
        marks += [spot.drawn("kp-cleared-spot") for spot in near]
        marks.append(first.drawn("kp-this-spot"))
    else:
        finding = f"The {len(spots):,} newest runs, {cleared:,} of them cleared; PCA of their"
        finding += f" vectors, {100 * kept:.0f} % of the variance"
        last = sorted(spots, key=lambda spot: spot.point.cleared)  # so that nothing covers them
        looks = ("kp-spot", "kp-cleared-spot")
        marks = [spot.drawn(looks[spot.point.cleared]) for spot in last]
    totals = ("all of them, the newest first", f"{len(spots):,}", f"{cleared:,}")
    rows, keys = [TableRow(totals, None if nearest else links.runs())], []
    order = (*COLOURS, OTHER)
    by_domain = defaultdict[str, list[_Spot]](list)  # those without a colour of their own are one
    for spot in sorted(spots, key=lambda spot: (order.index(spot.colour), spot.point.domain)):
        by_domain[spot.point.domain if spot.colour != OTHER else "others"].append(spot)
    for name, of in by_domain.items():
        href = links.runs(domain=name) if name in domains else None
        path, colour = f"M6 0{_shape(of[0].colour, 5.0)}", f"kp-spot kp-{of[0].colour}"
        keys.append(Key(name, Mark("path", {"d": path, "class": colour}), href))
        cells = (name, f"{len(of):,}", f"{sum(spot.point.cleared for spot in of):,}")
        rows.append(TableRow(cells, href))
    table = Table(("Domain", "Runs", "Cleared"), rows)
    return Chart(finding, table, marks=marks, height=_HEIGHT, legend=keys)


def project(vectors: Sequence[bytes]) -> tuple[list[tuple[float, float]], float]:
    """Return two principal components of each vector, and the part of the variance they show.

    By orthogonal iteration without BLAS, whose threads spin: LAPACK's eigenvectors take 20 times
    the processor time.
    """
    import numpy as np

    matrix = np.frombuffer(b"".join(vectors), dtype="<f4").reshape(len(vectors), -1)
    matrix = matrix - matrix.mean(axis=0)
    axes = np.random.default_rng(0).normal(size=(2, matrix.shape[1])).astype("f4")
    for _ in range(_ROUNDS):
        axes = np.einsum("kn,nd->kd", np.einsum("nd,kd->kn", matrix, axes), matrix)
        first = axes[0] / max(1e-12, float((axes[0] ** 2).sum()) ** 0.5)
        second = axes[1] - (axes[1] * first).sum() * first
        axes = np.stack([first, second / max(1e-12, float((second**2).sum()) ** 0.5)])
    places = np.einsum("nd,kd->nk", matrix, axes)
    places *= np.where(places[np.abs(places).argmax(axis=0), [0, 1]] < 0, -1, 1)  # signs are free
    total = float((matrix**2).sum())
    kept = float((places**2).sum()) / total if total > 0 else 0.0
    return [(float(x), float(y)) for x, y in places], min(1.0, max(0.0, kept))


def _fitted(places: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Fit them into the frame; one unit is as long up as across, or near would mean two things."""
    middle_x, middle_y = ((min(each) + max(each)) / 2 for each in zip(*places, strict=True))
    right, top = WIDTH / 2 - _EDGE, _HEIGHT / 2 - _EDGE
    reaches = (max(abs(x - middle_x) / right, abs(y - middle_y) / top) for x, y in places)
    reach = max(1e-9, *reaches)
    return [
        (WIDTH / 2 + (x - middle_x) / reach, _HEIGHT / 2 - (y - middle_y) / reach)
        for x, y in places
    ]


@cache
def _shape(colour: str, size: float) -> str:
    """Return the path of a spot of this radius."""
    return re.sub(r"-?[\d.]+", lambda number: f"{float(number[0]) * size:.3g}", _SHAPES[colour])
