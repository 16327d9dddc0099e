from itertools import pairwise

import pytest
from svg_reading import bars, every, threshold_x, words

from kp_middleware.web.pictures import Term, waterfall

SIGNALS = (
    Term("complexity", "0.870 × 0.20", 0.174),
    Term("novelty", "0.300 × 0.30", 0.09),
    Term("tool_diversity", "0.430 × 0.30", 0.129),
    Term("outcome_confidence", "0.540 × 0.20", 0.108),
)


def test_each_part_begins_where_the_one_before_it_ended():
    picture = waterfall(SIGNALS, 0.501, 0.75, is_cleared=False)

    spans = [bars(picture, colour)[0] for colour in ("blue", "orange", "green", "purple")]
    assert spans[0][0] == 0
    for before, after in pairwise(spans):
        assert after[0] == pytest.approx(before[0] + before[2], abs=0.02)
    (total,) = bars(picture, "below")
    assert total[0] == 0
    assert total[2] == pytest.approx(spans[-1][0] + spans[-1][2], abs=0.02)


def test_a_rule_that_takes_away_goes_back_and_is_a_loss():
    terms = (*SIGNALS, Term("single_tool", "rule", -0.1))

    picture = waterfall(terms, 0.401, 0.75, is_cleared=False)

    (loss,), (last,) = bars(picture, "loss"), bars(picture, "purple")
    assert loss[0] + loss[2] == pytest.approx(last[0] + last[2], abs=0.02)
    assert {"single tool", "−0.100", "rule"} <= set(words(picture))


@pytest.mark.parametrize(
    ("score", "colour", "words_"),
    [
        (0.75, "cleared", "0.000 above"),
        (0.501, "below", "0.249 below"),
        (0.75, "below", "not above"),  # as good as others, which had gone
    ],
)
def test_the_score_is_held_against_the_threshold(score, colour, words_):
    picture = waterfall(SIGNALS, score, 0.75, is_cleared=colour == "cleared")

    assert picture.finding == f"The score is {score:.3f}: {words_} the threshold of 0.75"
    ((x, _, wide, _),) = bars(picture, colour)
    assert (x + wide >= threshold_x(picture)) == (score >= 0.75)


def test_the_table_has_the_whole_sum():
    picture = waterfall(SIGNALS, 0.501, 0.75, is_cleared=False)

    assert picture.columns == ("Part", "Working", "Adds")
    assert picture.lines[1].cells == ("novelty", "0.300 × 0.30", "+0.090")
    assert picture.lines[-1].cells == ("score", "0.249 below", "0.501")


def test_no_threshold_line_crosses_a_word():
    picture = waterfall(SIGNALS, 0.501, 0.75, is_cleared=False)

    lines = [
        (float(line.get("y1")), float(line.get("y2")))
        for line in every(picture, "line")
        if line.get("class") in {"kp-threshold", "kp-tick", "kp-halo"}
    ]
    bases = [float(text.get("y")) for text in every(picture, "text")]
    assert len(lines) == 11
    assert not [
        base for base in bases for top, bottom in lines if base - 9 < bottom and top < base + 4
    ]


def test_the_threshold_is_set_off_from_the_bars_it_crosses():
    picture = waterfall(SIGNALS, 0.501, 0.4, is_cleared=True)

    kinds = [line.get("class") for line in every(picture, "line")]
    first_tick, last_bar = svg_order(picture, "kp-tick"), svg_order(picture, "kp-cleared")
    assert kinds[1:] == ["kp-halo", "kp-tick"] * 5
    assert first_tick > last_bar


def svg_order(picture, kind):
    """Where the first mark of a kind comes: what comes later covers what came before."""
    return picture.svg.index(f'class="{kind}"')


def test_a_run_without_a_score_says_why():
    picture = waterfall((), None, None, is_cleared=False, why_not="kept here, not scored yet")

    assert (picture.svg, picture.finding) == ("", "no score yet: kept here, not scored yet")
