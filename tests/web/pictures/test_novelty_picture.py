import pytest
from svg_reading import root, titles, words

from kp_middleware.web.pictures import Novelty, novelty_band

DAYS = [Novelty("2026-11-01", 0.4, 0.66, 0.9), Novelty("2026-11-21", 0.2, 0.51, 0.8)]


def test_the_finding_says_where_novelty_went():
    assert (
        novelty_band(DAYS).finding
        == "Median novelty went from 0.66 on 1 Nov 2026 to 0.51 on 21 Nov 2026"
    )


def test_the_band_is_around_the_median():
    picture = novelty_band(DAYS)

    band = root(picture).find(".//{*}polygon").get("points").split()
    line = root(picture).find(".//{*}polyline").get("points").split()
    heights = [float(point.split(",")[1]) for point in band]
    middle = [float(point.split(",")[1]) for point in line]
    assert heights[0] < middle[0] < heights[3]  # up is less
    assert middle[0] < middle[1]
    assert "2026-11-21: median 0.51, most from 0.20 to 0.80" in titles(picture)


def test_a_single_day_is_a_picture_too():
    picture = novelty_band(DAYS[:1])

    assert picture.finding == "Median novelty 0.66 on 1 Nov 2026, the only day so far"
    assert root(picture).find(".//{*}polygon") is None


@pytest.mark.parametrize(("days", "marked"), [(7, True), (None, False), (400, False)])
def test_how_far_back_is_compared_is_marked_where_it_is_known(days, marked):
    picture = novelty_band(DAYS, memory_days=days)

    assert ("compared back to here" in words(picture)) == marked


def test_without_novelty_there_are_words():
    assert novelty_band([]).finding.startswith("no novelty measured yet: ")
