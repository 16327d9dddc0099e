"""The map of runs by similarity, and the runs most similar to one."""

from collections.abc import Sequence
from typing import Final, NamedTuple, Self

from kp_middleware.storage import MapPoint
from kp_middleware.views.wording import shortened
from kp_middleware.web import marks

__all__ = ["SimilarRuns", "project", "trace_map"]

_HEIGHT: Final = 270.0
_EDGE: Final = 10.0
_RADII: Final = {"spot": 3.5, "faint-spot": 3.5, "cleared-spot": 5.5, "this-spot": 7.0}


class SimilarRuns(NamedTuple):
    """A run, the most similar runs, then others; and the similarities."""

    points: tuple[MapPoint, ...] = ()
    similarities: tuple[float, ...] = ()

    @classmethod
    def from_points(cls, points: Sequence[MapPoint]) -> Self:
        """Find the six points most similar to the first; see `History.points`."""
        import numpy as np

        if len(points) < 2:
            return cls()
        vectors = b"".join(point.vector for point in points)
        matrix = np.frombuffer(vectors, dtype="<f4").reshape(len(points), -1)
        cosines = matrix[1:] @ matrix[0]
        near = [int(at) for at in np.argsort(-cosines, kind="stable")[:6]]
        others = (point for at, point in enumerate(points[1:]) if at not in near)
        ordered = (points[0], *(points[at + 1] for at in near), *others)
        return cls(ordered, tuple(float(cosines[at]) for at in near))


def trace_map(
    points: Sequence[MapPoint], domains: Sequence[str], links: marks.Links, *, nearest: int = 0
) -> marks.Chart:
    """Draw the 400 newest runs by their vectors, or the first linked to its ``nearest``."""
    if len(points) < 3:
        return marks.Chart("no map yet: it needs three embedded runs")
    points = points[:400]
    places = _fit(project([point.vector for point in points]))
    colours = marks.colours_of({*domains, *(point.domain for point in points)})
    cleared = sum(point.cleared for point in points)
    drawn: list[marks.Mark] = []
    if nearest:
        caption = f"This run among the {len(points):,} newest, linked to the most similar"
        drawn += [marks.line(*places[0], *place, "link") for place in places[1 : nearest + 1]]
        styles = ["this-spot", *["cleared-spot"] * nearest]
        styles += ["faint-spot"] * (len(points) - len(styles))
        this, *others = zip(points, places, styles, strict=True)
        spots = [*others[nearest:], *others[:nearest], this]
    else:
        caption = f"The {len(points):,} newest runs, {cleared:,} of them cleared"
        styles = ["cleared-spot" if point.cleared else "spot" for point in points]
        spots = sorted(zip(points, places, styles, strict=True), key=lambda spot: spot[0].cleared)
    for point, place, style in spots:  # the most important on top
        score = "no score" if point.score is None else f"{point.score:.3f}"
        title = f"{shortened(point.objective, 64)} ({point.domain}, {score})"
        spot = marks.dot(place, _RADII[style], colours[point.domain], style)
        drawn.append(marks.group(title, (spot,), links.trace(point.id)))
    totals = ("all", f"{len(points):,}", f"{cleared:,}")
    rows, keys = [marks.TableRow(totals, None if nearest else links.runs())], []
    for colour in marks.SHAPES:  # domains without their own color are merged
        matching = [point for point in points if colours[point.domain] == colour]
        if not matching:
            continue
        name = "others" if colour == marks.OTHER else matching[0].domain
        href = links.runs(domain=name) if name in domains else None
        keys.append(marks.Key(name, marks.dot((6, 0), 5, colour), href))
        cells = (name, f"{len(matching):,}", f"{sum(point.cleared for point in matching):,}")
        rows.append(marks.TableRow(cells, href))
    table = marks.Table(("Domain", "Runs", "Cleared"), rows)
    return marks.Chart(caption, table, marks=drawn, height=_HEIGHT, legend=keys)


def project(vectors: Sequence[bytes]) -> list[marks.Point]:
    """Return the first two principal components of each vector.

    Uses orthogonal iteration without BLAS, whose threads spin for 20 times the CPU time.
    """
    import numpy as np

    matrix = np.frombuffer(b"".join(vectors), dtype="<f4").reshape(len(vectors), -1)
    matrix = matrix - matrix.mean(axis=0)
    axes = np.random.default_rng(0).normal(size=(2, matrix.shape[1])).astype("f4")
    for _ in range(40):
        axes = np.einsum("kn,nd->kd", np.einsum("nd,kd->kn", matrix, axes), matrix)
        first = axes[0] / max(1e-12, float((axes[0] ** 2).sum()) ** 0.5)
        second = axes[1] - (axes[1] * first).sum() * first
        axes = np.stack([first, second / max(1e-12, float((second**2).sum()) ** 0.5)])
    places = np.einsum("nd,kd->nk", matrix, axes)
    farthest = places[np.abs(places).argmax(axis=0), [0, 1]]
    places *= np.where(farthest < 0, -1, 1)  # signs are arbitrary
    return [(float(x), float(y)) for x, y in places]


def _fit(places: Sequence[marks.Point]) -> list[marks.Point]:
    middle_x, middle_y = ((min(each) + max(each)) / 2 for each in zip(*places, strict=True))
    right, top = marks.WIDTH / 2 - _EDGE, _HEIGHT / 2 - _EDGE
    reaches = (max(abs(x - middle_x) / right, abs(y - middle_y) / top) for x, y in places)
    reach = max(1e-9, *reaches)
    return [
        (marks.WIDTH / 2 + (x - middle_x) / reach, _HEIGHT / 2 - (y - middle_y) / reach)
        for x, y in places
    ]
