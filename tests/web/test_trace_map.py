"""Places of runs on the map, and their links."""

import re
import time

import numpy as np
import pytest
from page_reading import EchoLinks, groups

from kp_middleware.storage import MapPoint
from kp_middleware.web.marks import colours_of
from kp_middleware.web.trace_map import SimilarRuns, project, trace_map


def vectors(*rows):
    matrix = np.asarray(rows, dtype="<f4")
    return [row.tobytes() for row in matrix / np.linalg.norm(matrix, axis=1, keepdims=True)]


def points(*rows, domain="code", cleared=(), objective="a trace"):
    return [
        MapPoint(n, f"{n}", domain, objective, 0.5, n in cleared, vector)
        for n, vector in enumerate(vectors(*rows))
    ]


def many(number, **facts):
    return points(*np.random.default_rng(1).normal(size=(number, 8)), **facts)


def dots(chart, look):
    spots = [mark for group in groups(chart) for mark in group.inside]
    return [spot for spot in spots if spot.attributes["class"].split()[0] == look]


def middles(found):
    """Of all spots in these paths."""
    places = [
        re.findall(r"translate\(([\d.]+) ([\d.]+)\)", dot.attributes["transform"]) for dot in found
    ]
    return [(float(x), float(y)) for some in places for x, y in some]


def test_like_vectors_are_near_on_the_map():
    a, b, c = project(vectors([1, 0, 0, 0], [1, 0.1, 0, 0], [0, 0, 1, 0.2]))

    assert np.hypot(a[0] - b[0], a[1] - b[1]) < np.hypot(a[0] - c[0], a[1] - c[1]) / 5


@pytest.mark.parametrize("number", [3, 5])
def test_equal_vectors_have_a_place_too(number):
    chart = trace_map(points(*[[1, 0, 0]] * number), ["code"], EchoLinks())

    assert len(middles(dots(chart, "kp-spot"))) == number


def test_the_nearest_are_found_with_their_similarity_and_then_the_others_in_their_order():
    alike = SimilarRuns.from_points(points([1, 0], [0, 1], [1, 1], [1, 0]))

    assert [point.seq for point in alike.points] == [0, 3, 2, 1]
    assert alike.similarities == pytest.approx((1, 0.5**0.5, 0), abs=1e-6)
    twenty = SimilarRuns.from_points(many(20))
    others = [point.seq for point in twenty.points[7:]]
    assert (len(twenty.similarities), len(others), others) == (6, 13, sorted(others))


def test_what_cleared_is_larger_and_comes_last():
    chart = trace_map(points([1, 0], [0, 1], [1, 1], cleared={0}), ["code"], EchoLinks())

    assert chart.caption.startswith("The 3 newest runs, 1 of them cleared")
    assert len(dots(chart, "kp-cleared-spot")) == 1
    assert groups(chart)[-1].attributes["href"] == "/trace/0"
    assert chart.table.rows[1].cells == ("code", "3", "1")


def test_of_thousands_the_newest_are_drawn_and_all_can_be_opened():
    chart = trace_map(many(2000, cleared={3}), ["code"], EchoLinks())

    assert {group.attributes["href"] for group in groups(chart)} == {
        f"/trace/{n}" for n in range(400)
    }
    assert len(dots(chart, "kp-cleared-spot")) == 1


def test_the_two_axes_are_those_of_most_variance():
    matrix = np.random.default_rng(2).normal(size=(60, 12)) * np.geomspace(9, 1, 12)
    rows = np.frombuffer(b"".join(vectors(*matrix)), dtype="<f4").reshape(60, 12)
    exact = np.linalg.svd(rows - rows.mean(axis=0), compute_uv=False)

    places = project(vectors(*matrix))

    assert np.linalg.norm(places, axis=0) == pytest.approx(exact[:2], rel=1e-3)


def test_the_axes_of_an_embedder_with_many_dimensions_are_found_quickly():
    made, began_s = vectors(*np.random.default_rng(2).normal(size=(9, 2048))), time.process_time()

    project(made)

    assert time.process_time() - began_s < 1


def test_all_spots_are_inside_the_chart_which_is_always_the_same():
    chart = trace_map(many(50), ["code"], EchoLinks())

    assert chart == trace_map(many(50), ["code"], EchoLinks())
    assert trace_map(many(2), ["code"], EchoLinks()).caption.startswith("no map yet: ")
    assert chart.table.rows[0] == (("all", "50", "0"), "/runs?")  # for who cannot point
    for x, y in middles(dots(chart, "kp-spot")):
        assert 8 <= x <= 352
        assert 8 <= y <= chart.height


def test_a_run_is_joined_with_its_neighbours():
    chart = trace_map(many(4, objective="this"), ["code"], EchoLinks(), nearest=1)

    assert [mark.attributes["class"] for mark in chart.marks if mark.tag == "polyline"] == [
        "kp-link"
    ]
    assert dots(chart, "kp-this-spot")
    assert groups(chart)[-1].title == "this (code, 0.500)"
    assert len(dots(chart, "kp-faint-spot")) == 2


def test_domains_have_shapes_and_colours_of_their_own():
    colours = colours_of(["code", "medical", "law", "art", *map(str, range(20))])

    assert colours_of(["code"])["code"] == colours["code"]
    assert len({colours[name] for name in ("code", "medical", "0", "1")}) == 4
    assert colours["law"] == "grey"


def test_the_legend_names_each_domain_once_and_the_rest_together():
    names = ["code", "medical", *map(str, range(9))]
    spots = [point._replace(domain=names[n % 11]) for n, point in enumerate(many(22))]

    entries = [key.text for key in trace_map(spots, names, EchoLinks()).legend]

    assert entries[0] == "code"
    assert entries[-1] == "others"
    assert len(entries) == 8
