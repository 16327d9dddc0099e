import re

import numpy as np
import pytest
from svg_reading import every, hrefs, root, titles, words

from kp_middleware.web.pictures import Spot, colours_of, nearest, project, trace_map


def vectors(*rows):
    matrix = np.asarray(rows, dtype="<f4")
    return [row.tobytes() for row in matrix / np.linalg.norm(matrix, axis=1, keepdims=True)]


def spot(x, y, title="a trace", **facts):
    return Spot(x, y, title, "code", "blue", **{"cleared": False, **facts})


def paths(picture, kind):
    found = every(picture, "path")
    return [path for path in found if path.get("class").split()[0] == kind]


def middles(path):
    """Of all spots in it."""
    found = re.findall(r"M([\d.]+) ([\d.]+)m", path.get("d"))
    return [(float(x), float(y)) for x, y in found]


def test_like_vectors_are_near_on_the_map():
    (a, b, c), kept = project(vectors([1, 0, 0, 0], [1, 0.1, 0, 0], [0, 0, 1, 0.2]))

    assert np.hypot(a[0] - b[0], a[1] - b[1]) < np.hypot(a[0] - c[0], a[1] - c[1]) / 5
    assert 0.99 < kept <= 1


def test_the_same_vectors_give_the_same_map():
    some = vectors(*np.random.default_rng(1).normal(size=(40, 16)))

    assert project(some) == project(some)


@pytest.mark.parametrize("number", [0, 1, 2, 5])
def test_few_or_equal_vectors_have_a_place_too(number):
    places, kept = project(vectors(*[[1, 0, 0]] * number) if number else [])

    assert len(places) == number
    assert kept == pytest.approx(0, abs=1e-6) or 0 <= kept <= 1


def test_the_nearest_are_found_with_their_similarity():
    first, second = nearest(vectors([1, 0], [0, 1], [1, 1], [1, 0]), 2)

    assert first == (3, pytest.approx(1))
    assert second == (2, pytest.approx(0.5**0.5, abs=1e-6))


def test_what_cleared_is_larger_and_comes_last():
    picture = trace_map(
        [spot(0, 0, "best", cleared=True, href="/a"), spot(1, 1), spot(2, 0)], kept=0.31
    )

    assert picture.finding == (
        "The 3 newest traces, 1 of them cleared; PCA of their vectors, 31 % of the variance;"
        " 1 of them can be opened"
    )
    assert (len(paths(picture, "kp-cleared-spot")), hrefs(picture)) == (1, ["/a"])
    assert titles(picture)[2] == "best"
    assert picture.lines[1].cells == ("code", "3", "1")


def test_of_thousands_those_that_cleared_can_be_opened_and_all_are_drawn():
    spots = [spot(n % 50, n // 50, cleared=n % 20 == 0, href=f"/{n}") for n in range(2000)]

    picture = trace_map(spots, kept=1)

    drawn = [middle for path in paths(picture, "kp-spot") for middle in middles(path)]
    outlined = [middle for path in paths(picture, "kp-cleared-spot") for middle in middles(path)]
    assert {*hrefs(picture)} > {f"/{n}" for n in range(0, 2000, 20)}
    assert (len(drawn), len(outlined)) == (1900 + 1, 100)  # and the legend's own
    assert len(hrefs(picture)) == 200
    assert picture.finding.endswith("; 200 of them can be opened")
    assert len(picture.svg) < 150_000


def test_of_thousands_a_trace_and_its_neighbours_can_be_opened():
    spots = [spot(n % 50, n // 50, f"trace {n}", href=f"/{n}") for n in range(2000)]

    picture = trace_map(spots, kept=1, linked=[1500])

    assert titles(picture)[-3:-1] == ["trace 1500", "trace 0"]
    assert {"/0", "/1500"} < {*hrefs(picture)}


def test_no_domain_covers_all_others():
    colours = ("blue", "orange")
    spots = [Spot(n, n, "", colours[n % 2], colours[n % 2], cleared=False) for n in range(2000)]

    picture = trace_map(spots, kept=1)

    of = [path.get("class") for path in paths(picture, "kp-spot") if len(middles(path)) > 1]
    assert len(of) == 36
    assert set(of[::2]) != set(of[1::2])


def test_who_cannot_point_at_a_spot_is_led_to_a_list_of_all():
    picture = trace_map([spot(n, n) for n in range(3)], kept=1, every="/all")

    assert picture.lines[0] == (("all of them, the newest first", "3", "0"), "/all")


def test_all_spots_are_inside_the_picture():
    picture = trace_map([spot(-900, 4), spot(1e6, 0), spot(3, -5)], kept=0.5)

    _, _, wide, high = map(float, root(picture).get("viewBox").split())
    for path in paths(picture, "kp-spot")[:3]:
        ((x, y),) = middles(path)
        assert 8 <= x <= wide - 8
        assert 8 <= y <= high


def test_a_trace_is_joined_with_its_neighbours():
    spots = [spot(0, 0, "this"), spot(1, 1), spot(2, 0, "like it"), spot(3, 3)]

    picture = trace_map(spots, kept=0.5, linked=[2])

    assert len(every(picture, "line")) == 1
    assert titles(picture)[-2] == "this"
    assert len(paths(picture, "kp-faint-spot")) == 2


def test_domains_have_shapes_and_colours_of_their_own():
    colours = colours_of(["code", "medical", "law", "art", *map(str, range(20))])

    assert colours_of(["code"])["code"] == colours["code"]
    assert len({colours[name] for name in ("code", "medical", "0", "1")}) == 4
    assert colours["law"] == "grey"


def test_a_legend_of_many_long_names_grows_downwards():
    spots = [
        Spot(n, n, "", f"a domain with a long name {n}", colour, cleared=False)
        for n, colour in enumerate(("blue", "orange", "green", "purple", "cyan", "olive"))
    ]

    picture = trace_map(spots, kept=0.5)

    rows = [
        float(text.get("y")) for text in every(picture, "text") if text.text.startswith("a domain")
    ]
    assert len(set(rows)) == 6
    assert max(rows) < float(root(picture).get("viewBox").split()[3])


def test_two_traces_are_no_map():
    assert trace_map([spot(0, 0), spot(1, 1)], kept=1).finding.startswith("no map yet: ")


def test_the_legend_is_in_words():
    assert "code" in words(trace_map([spot(0, 0), spot(1, 1), spot(2, 2)], kept=1))
