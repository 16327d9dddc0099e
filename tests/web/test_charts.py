"""Charts of states, tools, a score, novelty and removals: drawing and caption."""

from itertools import pairwise

import pytest
from page_reading import EchoLinks, groups, places

from kp_middleware.storage import (
    Funnel,
    NoveltyDay,
    Overview,
    Removal,
    ScoreSlices,
    ToolUse,
)
from kp_middleware.views.trace import ScoreLine
from kp_middleware.web.charts import novelty_band, removal_bars, state_bars, tool_bars, waterfall
from kp_middleware.web.marks import Chart

SIGNALS = (
    ScoreLine("complexity", "0.870 × 0.20", 0.174),
    ScoreLine("novelty", "0.300 × 0.30", 0.09),
    ScoreLine("tool_diversity", "0.430 × 0.30", 0.129),
    ScoreLine("outcome_confidence", "0.540 × 0.20", 0.108),
)
DAYS = [NoveltyDay("2026-11-01", 0.4, 0.66, 0.9), NoveltyDay("2026-11-21", 0.2, 0.51, 0.8)]


def states(recorded, cleared=0, sent=0, blocked=0, **reasons):
    return state_bars(Funnel(recorded, cleared, 0, 0, sent, blocked, 0, reasons), EchoLinks())


def tools(*used):
    return tool_bars(Overview(ScoreSlices(None), None, tools=used), EchoLinks())


def explained(*lines, score=0.501):
    return waterfall([*lines, ScoreLine("score", "", score)], 0.75, "")


def test_each_state_has_a_bar_and_it_is_said_why_some_are_blocked():
    chart = states(600, cleared=48, blocked=3, residual_secret=3)

    bars = {bar.name: bar for bar in chart.bars}
    assert chart.caption == "600 recorded, 48 cleared, 3 blocked"
    assert bars["blocked: residual_secret 3"].href == "/runs?state=blocked"
    assert bars["cleared"].segments[0].width == pytest.approx(8)
    assert bars.keys() == {"recorded", "cleared", "blocked: residual_secret 3"}
    one_of_many = states(100_000, sent=1).bars[1]
    assert one_of_many.segments[0].width >= 0.3
    assert one_of_many.working == "<0.1%"


@pytest.mark.parametrize(
    ("chart", "words"),
    [
        (state_bars(Funnel(0, 0, 0, 0, 0, 0, 0, {}), EchoLinks()), "nothing recorded yet: "),
        (tool_bars(Overview(ScoreSlices(None), None), EchoLinks()), "no tool calls yet: "),
        (novelty_band([]), "no novelty measured yet: "),
        (waterfall([], None, "waits"), "no score yet: waits"),
        (novelty_band(DAYS[:1]), "median novelty 0.66 on 1 Nov 2026, the only day so far"),
    ],
)
def test_where_nothing_can_be_drawn_there_are_words(chart, words):
    assert chart == Chart(chart.caption)
    assert chart.caption.startswith(words)


def test_what_failed_of_a_tool_is_the_end_of_its_bar():
    chart = tools(ToolUse("read", 8, 2, 242.4), ToolUse("write", 2, 0, None))

    read, write = chart.bars
    assert chart.caption == "read was called most: 8 of 10 calls; 2 failed"
    assert [(segment.colour, segment.start, segment.width) for segment in read.segments] == [
        ("plain", 0, 75),
        ("loss", 75, 25),
    ]
    assert [segment.width for segment in write.segments] == [25, 0]
    assert (read.working, read.amount) == ("2 failed · 242\xa0ms", "8")
    assert (write.working, write.amount) == ("", "2")


def test_what_is_said_of_tools_is_said_of_all_also_where_some_are_drawn():
    chart = tools(ToolUse("read", 8, 2, None), *[ToolUse(f"{n}", 7, 1, None) for n in range(29)])

    assert chart.caption == (
        "read was called most: 8 of 211 calls; 31 failed. The 10 most used of 30"
    )


def test_each_part_begins_where_the_one_before_it_ended():
    *parts, total = (bar.segments[0] for bar in explained(*SIGNALS).bars)

    assert [part.colour for part in parts] == ["blue", "orange", "green", "purple"]
    assert parts[0].start == 0
    for before, after in pairwise(parts):
        assert after.start == pytest.approx(before.start + before.width)
    assert (total.start, total.colour) == (0, "below")
    assert total.width == pytest.approx(parts[-1].start + parts[-1].width)


def test_a_rule_that_takes_away_goes_back_and_is_a_loss():
    chart = explained(*SIGNALS, ScoreLine("single_tool", "rule", -0.1), score=0.401)

    before, bar = chart.bars[3].segments[0], chart.bars[4]
    (loss,) = bar.segments
    assert loss.colour == "loss"
    assert loss.start + loss.width == pytest.approx(before.start + before.width)
    assert (bar.name, bar.amount, bar.working) == ("single tool", "−0.100", "rule")


@pytest.mark.parametrize(
    ("score", "is_cleared", "words_"),
    [
        (0.75, True, "0.000 above"),
        (0.501, False, "0.249 below"),
    ],
)
def test_the_score_is_held_against_the_threshold(score, is_cleared, words_):
    chart = explained(*SIGNALS, score=score)

    assert chart.caption == f"The score is {score:.3f}: {words_} the threshold of 0.75"
    assert (chart.threshold, chart.threshold_name) == (75, "threshold 0.75")
    assert chart.bars[-1].segments[0].colour == ("cleared" if is_cleared else "below")


def test_the_band_is_around_the_median():
    chart = novelty_band(DAYS)

    looks = {mark.attributes.get("class"): mark for mark in chart.marks}
    band, line = (places(looks[look]) for look in ("kp-band", "kp-curve kp-line-orange"))
    assert chart.caption == "Median novelty went from 0.66 on 1 Nov 2026 to 0.51 on 21 Nov 2026"
    assert band[0][1] < line[0][1] < band[3][1]  # up is less
    assert line[0][1] < line[1][1]
    assert groups(chart)[1].title == "2026-11-21: median 0.51, most from 0.20 to 0.80"


def test_removals_are_added_up_by_kind_and_listed_by_week():
    removed = [
        Removal("2026-11-02", "api_key", 5),
        Removal("2026-11-02", "email", 6),
        Removal("2026-11-16", "email", 4),
    ]

    chart = removal_bars(removed)

    assert chart.caption == (
        "15 removed in the 12 weeks up to the newest run; most often email, 10 times"
    )
    assert [(bar.name, bar.amount, bar.segments[0].width) for bar in chart.bars] == [
        ("email", "10", 100),
        ("api_key", "5", 50),
    ]
    assert len(chart.table.rows) == 3
