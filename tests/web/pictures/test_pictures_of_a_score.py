import pytest
from svg_reading import bars, every, hrefs, root, threshold_x, titles, words

from kp_middleware.web.pictures import (
    Bin,
    Curve,
    DomainBins,
    by_domain,
    histogram,
    what_if,
)


def bins(*counts, threshold=0.75, link=lambda _: None):
    """Twentieths of the scale with so many traces each, the first ones from 0."""
    return [
        Bin(
            place / 20,
            (place + 1) / 20,
            0 if place / 20 >= threshold else number,
            number if place / 20 >= threshold else 0,
            link(place / 20),
        )
        for place, number in enumerate(counts)
    ]


def curve(name, *scores, colour="blue"):
    """Of scores in hundredths, against 0.75."""
    reaching = tuple(sum(score >= at for score in scores) for at in range(101))
    return Curve(name, colour, reaching, reaching[75])


def test_a_histogram_says_how_many_reach_the_threshold():
    picture = histogram(bins(*[0] * 10, 552, *[0] * 5, 48), 0.75)

    assert picture.finding == "48 of 600 at or above 0.75 (8.0\xa0%)"
    assert root(picture).get("aria-label") == picture.finding
    assert root(picture).get("role") == "img"
    assert {"threshold 0.75", "552 below", "48 pass"} <= set(words(picture))


def test_a_bar_is_as_high_as_its_count_and_stands_on_zero():
    picture = histogram(bins(10, 20), 0.75)

    (x1, y1, _, high1), (x2, y2, _, high2) = bars(picture, "below")
    assert high2 == pytest.approx(2 * high1)
    assert y1 + high1 == pytest.approx(y2 + high2)
    assert x1 < x2


def test_the_threshold_divides_a_bar_that_lies_on_both_of_its_sides():
    picture = histogram([Bin(0.7, 0.75, 30, 10)], 0.74)

    (below,), (above,) = bars(picture, "below"), bars(picture, "cleared")
    assert below[3] == pytest.approx(3 * above[3])
    assert above[1] + above[3] == pytest.approx(below[1])
    assert below[0] < threshold_x(picture) < below[0] + below[2]


def test_a_bar_leads_to_its_traces_and_so_does_its_row_in_the_table():
    picture = histogram(bins(3, 0, 4, link=lambda low: f"/list?from={low}"), 0.75)

    assert hrefs(picture) == ["/list?from=0.0", "/list?from=0.1"]
    assert [line.href for line in picture.lines] == hrefs(picture)
    assert titles(picture) == ["0.00 to 0.05: 3 traces", "0.10 to 0.15: 4 traces"]


@pytest.mark.parametrize("threshold", [0, 0.02, 0.5, 0.98, 1])
def test_the_words_beside_the_threshold_stay_in_the_picture(threshold):
    picture = histogram(bins(100_000, threshold=threshold), threshold)

    for text in every(picture, "text"):
        wide, x = len(text.text) * 6.3, float(text.get("x"))
        left = x - {"middle": wide / 2, "end": wide}.get(text.get("text-anchor"), 0)
        assert left >= -4, text.text
        assert left + wide <= 364, text.text


@pytest.mark.parametrize(
    "picture",
    [histogram([], None), histogram(bins(0, 0), 0.75), by_domain([], 0.75), what_if([], None)],
    ids=["no threshold", "no traces", "no domains", "no curves"],
)
def test_without_scores_there_are_words_in_place_of_a_picture(picture):
    assert picture.svg == ""
    assert picture.finding.startswith("no scored runs yet: ")


def test_each_domain_has_its_own_histogram_on_one_scale():
    large = DomainBins("code", (*bins(*[0] * 10, 600, *[0] * 5, 200),), "blue", "/code")
    small = DomainBins("law", (*bins(*[0] * 10, 2, *[0] * 5, 2),), "olive")

    picture = by_domain([large, small], 0.75)

    assert picture.finding == "law reaches 0.75 most often: 50.0\xa0% of 4"
    assert [line.cells[:3] for line in picture.lines] == [("code", "800", "200"), ("law", "4", "2")]
    assert hrefs(picture) == ["/code"]
    of_code, of_law = bars(picture, "below")
    assert of_code[3] == pytest.approx(1.5 * of_law[3], abs=0.02)  # 75 % of its own beside 50 %


def test_of_many_domains_the_table_has_all_and_the_picture_the_first():
    domains = [DomainBins(f"d{number}", (*bins(1),), "grey") for number in range(12)]

    picture = by_domain(domains, 0.75)

    assert (len(titles(picture)), len(picture.lines)) == (8, 12)
    assert picture.finding.endswith("; the 8 most frequent of 12 are drawn")


def test_the_curve_says_what_each_threshold_would_let_through():
    picture = what_if([curve("all", 20, 60, 74, 75, 90), curve("law", 20, colour="olive")], 0.75)

    assert picture.finding == "2 of 5 reach 0.75 (40.0\xa0%)"
    cells = {line.cells[0]: line.cells[1:] for line in picture.lines}
    assert picture.columns[-1] == "law"
    assert cells["→ 0.75"] == ("2", "40.0\xa0%", "±0", "0\xa0%")
    assert cells["0.20"] == ("5", "100\xa0%", "+3", "100\xa0%")
    assert cells["0.95"] == ("0", "0\xa0%", "−2", "0\xa0%")
    assert {"all 40.0 %", "law 0 %"} <= set(words(picture))


def test_where_the_bar_is_another_for_each_run_no_line_is_drawn():
    counted = bins(0, 3, 4)
    pictures = [
        histogram(counted, None),
        by_domain([DomainBins("law", (*counted,), "olive")], None),
        what_if([curve("all", 20, 60, 74, 75, 90)], None),
    ]

    assert [every(picture, "line[@class='kp-threshold']") for picture in pictures] == [[]] * 3
    assert [picture.finding for picture in pictures] == [
        "0 of 7 cleared the bar of their own run (0\xa0%)",
        "law clears its bar most often: 0\xa0% of 7",
        "2 of 5 cleared the bar of their own run (40.0\xa0%)",
    ]
    assert pictures[0].columns[1:] == ("Withheld", "Cleared")


def test_a_threshold_that_is_no_step_has_a_row_of_its_own():
    picture = what_if([curve("all", 20, 60, 74, 75, 90)._replace(now=2)], 0.7435)

    cells = [line.cells for line in picture.lines]
    assert cells[15] == ("→ 0.7435", "2", "40.0\xa0%", "±0")
    assert len(cells) == 22


def test_the_curve_falls_from_all_to_none():
    picture = what_if([curve("all", 0, 50, 50, 99)], 0.75)

    line = root(picture).find(".//{*}polyline").get("points").split()
    heights = [float(point.split(",")[1]) for point in line]
    assert len(line) == 101
    assert heights == sorted(heights)
    assert heights[0] < heights[50] < heights[51] < heights[100]


def test_no_two_of_the_curves_that_are_drawn_look_alike_and_how_many_are_is_said():
    domains = [curve(f"d{number}", 20, colour="grey") for number in range(9)]

    picture = what_if([curve("all", 20, colour="ink"), *domains], 0.75)

    looks = [line.get("class") for line in every(picture, "polyline")]
    keys = [line.get("class") for line in every(picture, "path")]
    assert len(looks) == len({*looks}) == 8
    assert {*looks} == {*keys}
    assert picture.finding.endswith("; the 7 most frequent of 9 domains are drawn")
    assert len(picture.columns) == 4 + 9


@pytest.mark.parametrize("above", [48, 546, 1_546])
def test_how_many_reach_the_threshold_stands_on_their_side(above):
    picture = histogram(bins(*[0] * 10, 1_454, *[0] * 5, above), 0.75)

    (told,) = [text for text in every(picture, "text") if (text.text or "").endswith(" pass")]
    assert float(told.get("x")) > threshold_x(picture)
    assert told.text == f"{above:,} pass"


def test_without_a_style_sheet_nothing_is_filled_that_only_leads_somewhere():
    picture = histogram(bins(3, 4, link=lambda low: f"/{low}"), 0.75)

    hits = [mark for mark in every(picture, "rect") if mark.get("class") == "kp-hit"]
    assert [mark.get("fill") for mark in hits] == ["none"] * 2
    lines = every(what_if([curve("all", 20)], 0.75), "polyline")
    assert [line.get("fill") for line in lines] == ["none"]
