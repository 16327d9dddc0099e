"""Charts of scores: drawing, caption and table."""

from itertools import pairwise

import pytest
from page_reading import EchoLinks, NoLinks, groups, places

from kp_middleware.storage import ScoreSlices, Slice
from kp_middleware.web.charts import score_histogram, threshold_curve


def slices(threshold=0.75, **domains):
    """Scores in hundredths of each domain, against this threshold, or 0.75 where none is fixed."""
    bar = 75 if threshold is None else round(100 * threshold)
    return ScoreSlices(
        threshold,
        tuple(
            Slice(domain, score, number, number if score >= bar else 0)
            for domain, scores in domains.items()
            for score, number in scores.items()
        ),
    )


def bars(group, colour):
    return [one.attributes for one in group.inside if one.attributes["class"] == f"kp-{colour}"]


def labels(chart):
    return [mark for mark in chart.marks if mark.tag == "text"]


def look(mark):
    return mark.attributes["class"]


def threshold_x(chart):
    return next(
        places(mark)[0][0]
        for mark in chart.marks
        if mark.tag == "polyline" and look(mark) == "kp-threshold"
    )


def test_a_histogram_says_how_many_reach_the_threshold():
    chart = score_histogram(slices(code={50: 552, 80: 48}), EchoLinks())

    assert chart.caption == "48 of 600 at or above 0.75 (8.0%)"
    assert "threshold 0.75" in [label.text for label in labels(chart)]


def test_a_bar_is_as_high_as_its_count_and_stands_on_zero():
    first, second = groups(score_histogram(slices(code={0: 10, 5: 20}), EchoLinks()))

    (low,), (high,) = bars(first, "below"), bars(second, "below")
    assert high["height"] == pytest.approx(2 * low["height"])
    assert low["y"] + low["height"] == pytest.approx(high["y"] + high["height"])
    assert low["x"] < high["x"]


def test_the_threshold_divides_a_bar_that_lies_on_both_of_its_sides():
    chart = score_histogram(slices(0.74, code={73: 30, 74: 10}), EchoLinks())

    (group,) = groups(chart)
    (below,), (above,) = bars(group, "below"), bars(group, "cleared")
    assert below["height"] == pytest.approx(3 * above["height"])
    assert above["y"] + above["height"] == pytest.approx(below["y"])
    assert below["x"] < threshold_x(chart) < below["x"] + below["width"]


def test_a_bar_leads_to_its_runs_and_so_does_its_row_in_the_table():
    chart = score_histogram(slices(code={0: 3, 10: 4}), EchoLinks())

    found = groups(chart)
    hrefs = [one.attributes["href"] for one in found]
    assert hrefs == [
        "/runs?min_score=0&max_score=0.05&sort=score",
        "/runs?min_score=0.1&max_score=0.15&sort=score",
    ]
    assert [row.href for row in chart.table.rows] == hrefs
    assert [one.title for one in found] == ["0.00 to 0.05: 3 runs", "0.10 to 0.15: 4 runs"]


def test_a_score_of_one_is_in_the_last_bar():
    (group,) = groups(score_histogram(slices(code={100: 3}), NoLinks()))

    assert group.title == "0.95 to 1.00: 3 runs"


@pytest.mark.parametrize("threshold", [0, 0.02, 0.5, 0.98, 1])
def test_the_words_beside_the_threshold_stay_in_the_chart(threshold):
    chart = score_histogram(slices(threshold, code={0: 100_000}), NoLinks())

    for label in labels(chart):
        wide, anchor = len(label.text) * 6.3, label.attributes["text-anchor"]
        left = label.attributes["x"] - {"start": 0, "middle": wide / 2, "end": wide}[anchor]
        assert left >= -4, label.text
        assert left + wide <= 364, label.text


@pytest.mark.parametrize("chart", [score_histogram, threshold_curve])
def test_without_scores_there_are_words_in_place_of_a_chart(chart):
    found = chart(ScoreSlices(None), EchoLinks())

    assert not found.is_drawn
    assert found.caption.startswith("no scored runs yet: ")


def test_the_curve_says_what_each_threshold_would_let_through():
    chart = threshold_curve(slices(all_else={60: 1, 74: 1, 75: 1, 90: 1}, law={20: 1}), EchoLinks())

    assert chart.caption == "2 of 5 reach 0.75 (40.0%)"
    assert chart.table.columns[-1] == "law"
    cells = {row.cells[0]: row.cells[1:3] for row in chart.table.rows}
    assert cells["→ 0.75"] == ("2", "40.0%")
    assert cells["0.20"] == ("5", "100%")
    assert cells["0.95"] == ("0", "0%")
    assert [key.text for key in chart.legend] == [
        "all 40.0%",
        "all_else 50.0%",
        "law 0%",
    ]


def test_where_the_bar_is_another_for_each_run_no_line_is_drawn():
    scores = slices(None, law={5: 3, 80: 4})
    charts = [each(scores, NoLinks()) for each in (score_histogram, threshold_curve)]

    marks = [mark for chart in charts for mark in chart.marks]
    assert not [mark for mark in marks if "threshold" in str(mark)]
    assert [chart.caption for chart in charts] == [
        "4 of 7 passed the threshold at the time (57.1%)",
        "4 of 7 passed the threshold at the time (57.1%)",
    ]
    assert charts[0].table.columns[1:] == ("Withheld", "Cleared")


def test_a_threshold_that_is_no_step_has_a_row_of_its_own():
    chart = threshold_curve(slices(0.7435, code={20: 1, 60: 1, 75: 1, 90: 1}), EchoLinks())

    cells = [row.cells for row in chart.table.rows]
    assert cells[15] == ("→ 0.7435", "2", "50.0%")
    assert len(cells) == 22


def test_the_curve_falls_from_all_to_none():
    chart = threshold_curve(slices(code={0: 1, 50: 2, 99: 1}), NoLinks())

    (curve,) = (group.inside[0] for group in groups(chart))
    heights = [y for _, y in places(curve)]
    assert len(heights) == 101
    assert all(before <= after for before, after in pairwise(heights))
    assert heights[0] < heights[50] < heights[51] < heights[100]


def test_no_two_of_the_curves_that_are_drawn_look_alike_and_how_many_are_is_said():
    scores = slices(**{f"d{number}": {20: 1} for number in range(9)})

    chart = threshold_curve(scores, EchoLinks())

    looks = [look(group.inside[0]) for group in groups(chart)]
    assert len(looks) == len({*looks}) == 8
    assert {*looks} == {look(key.mark) for key in chart.legend}
    assert chart.caption.endswith("; the 7 most frequent of 9 domains are shown")
    assert len(chart.table.columns) == 3 + 9
