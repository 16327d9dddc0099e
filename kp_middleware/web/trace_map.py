"""The map of runs, where similar ones are near, and the runs most similar to one."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Self

from kp_middleware.storage import MapPoint
from kp_middleware.views.wording import shortened
from kp_middleware.web.marks import (
    OTHER,
    SHAPES,
    WIDTH,
    Chart,
    Key,
    Links,
    Mark,
    Point,
    Table,
    TableRow,
    colours_of,
    dot,
    group,
    straight,
)

_HEIGHT: Final = 270.0
_EDGE: Final = 10.0
_TITLE: Final = 64
_MOST_ALIKE: Final = 6
_MOST_DRAWN: Final = 400
_ROUNDS: Final = 40
_RADII: Final = {"spot": 3.5, "faint-spot": 3.5, "cleared-spot": 5.5, "this-spot": 7.0}


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


def trace_map(
    points: Sequence[MapPoint], domains: Sequence[str], links: Links, *, nearest: int = 0
) -> Chart:
    """Draw the 400 newest runs by their vectors, or the first joined with those after it."""
    if len(points) < 3:
        return Chart("no map yet: it needs three runs that an embedder has seen")
    points = points[:_MOST_DRAWN]
    places, kept = project([point.vector for point in points])
    places = _fitted(places)
    colours = colours_of({*domains, *(point.domain for point in points)})
    cleared = sum(point.cleared for point in points)
    marks: list[Mark] = []
    if nearest:
        finding = f"This run among the {len(points):,} newest, joined with its nearest"
        marks += [straight(*places[0], *place, "link") for place in places[1 : nearest + 1]]
        looks = ["this-spot", *["cleared-spot"] * nearest]
        looks += ["faint-spot"] * (len(points) - len(looks))
        this, *others = zip(points, places, looks, strict=True)
        spots = [*others[nearest:], *others[:nearest], this]
    else:
        finding = f"The {len(points):,} newest runs, {cleared:,} of them cleared; PCA of their"
        finding += f" vectors, {100 * kept:.0f} % of the variance"
        looks = ["cleared-spot" if point.cleared else "spot" for point in points]
        spots = sorted(zip(points, places, looks, strict=True), key=lambda spot: spot[0].cleared)
    for point, place, look in spots:  # the most important last, so that nothing covers it
        score = "no score" if point.score is None else f"{point.score:.3f}"
        title = f"{shortened(point.objective, _TITLE)} ({point.domain}, {score})"
        spot = dot(place, _RADII[look], colours[point.domain], look)
        marks.append(group(title, (spot,), links.trace(point.id)))
    totals = ("all of them, the newest first", f"{len(points):,}", f"{cleared:,}")
    rows, keys = [TableRow(totals, None if nearest else links.runs())], []
    for name, colour, of in _by_colour(points, colours):
        href = links.runs(domain=name) if name in domains else None
        keys.append(Key(name, dot((6, 0), 5, colour), href))
        cells = (name, f"{len(of):,}", f"{sum(point.cleared for point in of):,}")
        rows.append(TableRow(cells, href))
    table = Table(("Domain", "Runs", "Cleared"), rows)
    return Chart(finding, table, marks=marks, height=_HEIGHT, legend=keys)


def _by_colour(
    points: Sequence[MapPoint], colours: Mapping[str, str]
) -> Iterator[tuple[str, str, list[MapPoint]]]:
    """Yield each domain with its colour and points; those without one of their own are one."""
    for colour in SHAPES:
        if of := [point for point in points if colours[point.domain] == colour]:
            yield "others" if colour == OTHER else of[0].domain, colour, of


def project(vectors: Sequence[bytes]) -> tuple[list[Point], float]:
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


def _fitted(places: Sequence[Point]) -> list[Point]:
    """Fit them into the frame; one unit is as long up as across, or near would mean two things."""
    middle_x, middle_y = ((min(each) + max(each)) / 2 for each in zip(*places, strict=True))
    right, top = WIDTH / 2 - _EDGE, _HEIGHT / 2 - _EDGE
    reaches = (max(abs(x - middle_x) / right, abs(y - middle_y) / top) for x, y in places)
    reach = max(1e-9, *reaches)
    return [
        (WIDTH / 2 + (x - middle_x) / reach, _HEIGHT / 2 - (y - middle_y) / reach)
        for x, y in places
    ]
