import pytest
from svg_reading import bars, hrefs, titles, words

from kp_middleware.web.pictures import (
    AllTools,
    Removed,
    Stage,
    ToolCalls,
    funnel,
    removals,
    tool_bars,
)


def test_the_funnel_has_one_bar_a_stage_and_says_why_some_are_blocked():
    stages = [
        Stage("recorded", 600, "plain", href="/all"),
        Stage("cleared", 48, "cleared"),
        Stage("blocked", 3, "loss", "residual_secret 3", "/blocked"),
        Stage("rejected", 0, "loss"),
    ]

    picture = funnel(stages)

    assert picture.finding == "600 recorded, 48 cleared, 3 blocked"
    assert "blocked: residual_secret 3" in words(picture)
    assert hrefs(picture) == ["/all", "/blocked"]
    (whole,), (some,) = bars(picture, "plain"), bars(picture, "cleared")
    assert some[2] == pytest.approx(whole[2] * 48 / 600, abs=0.01)
    assert picture.lines[1].cells == ("cleared", "48", "8.0\xa0%")


def test_one_of_a_hundred_thousand_is_still_seen():
    picture = funnel([Stage("recorded", 100_000, "plain"), Stage("sent", 1, "cleared")])

    ((_, _, wide, _),) = bars(picture, "cleared")
    assert wide >= 1
    assert "<0.1\xa0%" in words(picture)


def test_of_none_there_is_no_bar():
    picture = funnel([Stage("recorded", 5, "plain"), Stage("sent", 0, "cleared")])

    assert bars(picture, "cleared") == []


def test_an_empty_file_says_how_to_begin():
    assert funnel([Stage("recorded", 0, "plain")]).finding.startswith("nothing recorded yet: ")


def test_what_failed_of_a_tool_is_the_end_of_its_bar():
    tools = [ToolCalls("read", 8, 2, 242.4), ToolCalls("write", 2, 0, None)]

    picture = tool_bars(tools, AllTools(2, 10, 2))

    assert picture.finding == "read was called most: 8 of 10 calls; 2 failed"
    good, small = bars(picture, "plain")
    (failed,) = bars(picture, "loss")
    assert good[0] + good[2] == pytest.approx(failed[0], abs=0.01)
    assert failed[2] == pytest.approx(good[2] / 3, abs=0.01)
    assert small[2] == pytest.approx((good[2] + failed[2]) / 4, abs=0.01)
    assert "read 2 failed · 242\xa0ms 8" in titles(picture)
    assert picture.lines[1].cells == ("write", "2", "0", "")


def test_what_is_said_of_tools_is_said_of_all_also_where_some_are_drawn():
    picture = tool_bars([ToolCalls("read", 8, 2, None)], AllTools(30, 205, 53))

    assert picture.finding == (
        "read was called most: 8 of 205 calls; 53 failed. The 1 most used of 30"
    )


def test_failures_without_a_noted_call_are_drawn_too():
    picture = tool_bars([ToolCalls("read", 0, 3, None)], AllTools(1, 0, 3))

    assert len(bars(picture, "loss")) == 1


def test_without_tools_there_are_words():
    assert tool_bars([], AllTools(0, 0, 0)).finding.startswith("no tool calls yet: ")


def test_removals_are_stacked_by_week_and_kind():
    removed = [
        Removed("2026-11-02", "email", 6),
        Removed("2026-11-02", "api_key", 2),
        Removed("2026-11-16", "email", 4),
    ]

    picture = removals(removed, nothing="")

    assert picture.finding == (
        "12 removed in the 12 weeks up to the newest run; most often email, 10 times"
    )
    assert titles(picture)[:3] == [
        "week from 2026-11-02: 6 email, 2 api_key",
        "week from 2026-11-09: none",
        "week from 2026-11-16: 4 email",
    ]
    (first, second) = (bar for bar in bars(picture, "orange") if bar[3] != 10)
    (key,) = (bar for bar in bars(picture, "blue") if bar[3] != 10)
    assert first[3] + 1 == pytest.approx((second[3] + 1) * 1.5, abs=0.05)
    assert key[1] + key[3] <= first[1]
    assert {"email 10", "api_key 2"} <= set(words(picture))


def test_of_a_long_time_the_last_twelve_weeks_are_drawn():
    weeks = [Removed("2025-01-06", "email", 1), Removed("2026-11-16", "email", 1)]

    picture = removals(weeks, nothing="")

    assert sum(title.startswith("week from") for title in titles(picture)) == 12


def test_many_kinds_share_one_colour_after_the_seventh():
    kinds = [Removed("2026-11-02", f"kind{n:02}", 100 - n) for n in range(20)]

    picture = removals(kinds, nothing="")

    assert "other kinds 1,131" in words(picture)
    assert len(picture.lines) == 20


def test_where_nothing_was_removed_there_are_words():
    assert removals([], nothing="nothing at all") == ("", "nothing at all", (), ())
