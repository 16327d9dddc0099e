"""The traces most like one."""

from collections.abc import Sequence
from typing import NamedTuple, Self

from kp_middleware.storage import MOST_POINTS, MapPoint
from kp_middleware.web.page._card import card, table
from kp_middleware.web.page._links import Links
from kp_middleware.web.page._objective import titled
from kp_middleware.web.page._questions import neighbours_picture
from kp_middleware.web.pictures import Line, Markup, count, nearest

_MOST = 6
_CELL = 100


class Alike(NamedTuple):
    """One trace among others.

    Attributes:
        points: The trace itself first; empty where it has no vector.
        nearest: The places of those most like it, with the similarity, the most first.
        compared: Among how many traces they were found.
    """

    points: tuple[MapPoint, ...] = ()
    nearest: tuple[tuple[int, float], ...] = ()
    compared: int = 0

    @classmethod
    def among(cls, points: Sequence[MapPoint]) -> Self:
        """The six most like the first, as `read_points` gives them around a trace."""
        if len(points) < 2:
            return cls()
        found = nearest([point.vector for point in points], _MOST)
        return cls(tuple(points), tuple(found), len(points) - 1)

    def alone(self) -> Self:
        """The same without the others: for a list, not for a map."""
        points = (*self.points[:1], *(self.points[place] for place, _ in self.nearest))
        places = enumerate((similarity for _, similarity in self.nearest), 1)
        return self._replace(points=points, nearest=tuple(places))


def alike_card(alike: Alike, links: Links, domains: Sequence[str], *, draws_map: bool) -> Markup:
    """The nearest by vector, and on the map where it is wanted."""
    title = "Most like it"
    if not alike.nearest:
        why = "Nothing to compare: it has no vector, or is the only one that has."
        return card(title, lead=why)
    drawn = Markup()
    if draws_map:
        places = [place for place, _ in alike.nearest]
        drawn = neighbours_picture(alike.points, domains, links, joined_with=places).svg
    lines = [_line(alike.points[place], similarity, links) for place, similarity in alike.nearest]
    lead = f"By their vectors, among {_whom(alike.compared)}."
    return card(title, drawn, table(("Objective", "Score", "Similarity"), lines), lead=lead)


def _whom(compared: int) -> str:
    """The nearest of all may be older: to compare each of 100,000 takes longer than a page may."""
    if compared < MOST_POINTS - 1:
        return "all others"
    return f"the {count(MOST_POINTS)} newest; kp-middleware similar compares all"


def _line(point: MapPoint, similarity: float, links: Links) -> Line:
    score = "" if point.score is None else f"{point.score:.3f}"
    like = f"{similarity:.3f}".replace("-", "−")
    return Line((titled(point.objective, _CELL), score, like), links.trace(point.id))
