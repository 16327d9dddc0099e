import pytest
from page_reading import EchoLinks, NoLinks, card, hrefs, parsed, text_of, titles_of_cards
from sample_runs import put, run, step

from kp_middleware.storage import History, ToolUse
from kp_middleware.web.pages import overview_html


def test_the_overview_has_every_picture_of_the_file(work, overview_page):
    for number in range(4):
        work(f"fix test {number}")
        work(f"sum up trial {number}", "medical", 0.2)

    assert titles_of_cards(overview_page()) == [
        "Time and tokens by day",
        "Runs by day",
        "Scores",
        "Nearest to the threshold",
        "Delivery",
        "Share by threshold",
        "Tools",
        "Map",
    ]


def test_what_succeeded_of_what_was_forwarded_is_reported(work, overview_page, kp):
    work("fix the test")
    assert "with a confirmed outcome" not in text_of(overview_page())

    kp.feedback(kp.runs()[0].id, success=False)

    told = "0 of 1 run with a confirmed outcome succeeded; 0 of the 1 forwarded."
    assert told in text_of(overview_page())


def test_each_picture_has_its_words_in_the_caption_and_as_a_table_or_beside_its_bars(
    work, overview_page
):
    for number in range(3):
        work(f"fix test {number}")
    page = overview_page()

    frame = card(page, "Tools")
    names = ["".join(one.itertext()) for one in parsed(page).iter("summary")]

    assert frame.find("figcaption").text.strip() == (
        "look was called most: 3 of 3 calls; none failed."
    )
    bar = frame.find("div/a")
    assert (bar.find("span/bdi").text, bar.find("b").text) == ("look", "3")
    assert "As a table: Scores" in names
    assert len(names) == len({*names}) > 1


def test_what_was_asked_is_never_a_link_without_a_name(work, overview_page):
    work(" \n")

    row = card(overview_page(), "Nearest to the threshold").find("table/tbody/tr")

    assert "".join(row.find("td/a").itertext()) == "(no objective)"


def test_a_tool_that_was_never_called_leads_nowhere(connection):
    used = (ToolUse("read", 3, 1, None), ToolUse("write", 0, 2, None))
    overview = History(connection).overview()._replace(tools=used)

    found = hrefs(overview_html(overview, EchoLinks()))

    assert "/runs?tool=read" in found
    assert "/runs?tool=write" not in found


def test_what_lies_nearest_to_the_threshold_is_listed_with_the_line_between(work, overview_page):
    work("a good one")
    work("a poor one", confidence=0.0, uses_tool=False)

    frame = card(overview_page(), "Nearest to the threshold")

    above, below = frame.findall("table/tbody/tr")
    assert "".join(above.find("td").itertext()) == "a good one"
    assert (above.get("class"), below.get("class")) == ("kp-line", None)
    assert [row.findall("td")[2].find("bdi").text[0] for row in (above, below)] == ["+", "−"]


@pytest.mark.parametrize(
    ("score", "numbers"),
    [
        (0.9, ("0.900", "+0.150")),
        (0.75, ("0.750", "+0.000")),
        (0.74996, ("0.750", "−0.00004")),
        (0.7498, ("0.750", "−0.0002")),
    ],
)
def test_a_margin_has_as_many_digits_as_it_takes_to_see_one(
    work, overview_page, connection, score, numbers
):
    work("fix it")
    connection.execute("UPDATE traces SET score = ?, threshold = 0.75", (score,))

    frame = card(overview_page(), "Nearest to the threshold")

    cells = frame.findall("table/tbody/tr/td/bdi")
    assert tuple(cell.text for cell in cells) == numbers


def test_bars_rows_and_spots_lead_where_the_links_say(work, overview_page):
    for number in range(3):
        work(f"fix test {number}")
        work(f"sum up trial {number}", "medical", 0.2)

    found = hrefs(overview_page())

    assert {"/runs?", "/runs?tool=look", "/runs?domain=medical&sort=score"} <= {*found}
    assert any(href.startswith("/runs?since=") for href in found)
    assert any(href.startswith("/runs?min_score=") for href in found)
    assert any(href.startswith("/trace/") for href in found)
    assert hrefs(overview_page(NoLinks())) == []


def test_where_none_of_100_cleared_the_page_begins_with_what_to_do(work, overview_page, connection):
    for number in range(100):
        work(f"fix test {number}")
    before = text_of(overview_page())
    connection.execute("UPDATE traces SET decision = 'withhold'")

    page = overview_page()

    assert "None of the last" not in before
    assert text_of(page).startswith("None of the last 100 scored runs cleared the gate")
    assert 'KP_THRESHOLD="top 10%"' in text_of(page)


def test_an_empty_file_has_words_in_place_of_pictures(overview_page):
    page = overview_page()

    assert [*parsed(page).iter("{http://www.w3.org/2000/svg}svg")] == []
    assert "No scored runs yet" in text_of(page)
    assert "Nothing recorded yet" in text_of(page)


def test_the_99th_percentile_of_a_few_runs_is_the_slowest(db, connection):
    for took_ms in (1, 2, 3, 4, 50):
        put(db, run("Look it up", step("thought"), duration_ms=took_ms))

    (day,) = History(connection).overview().days

    assert (day.p50_ms, day.p99_ms) == (3, 50)


@pytest.fixture
def old_import(db):
    """Two runs of November, then one of June that was imported after them."""
    for instant, success in (("11-20", True), ("11-21", False), ("06-01", False)):
        started, facts = f"2026-{instant}T00:00:00Z", {"success": success}
        put(db, run("x", step("thought"), instant=started, success_source="verdict", **facts))


@pytest.mark.usefixtures("old_import")
@pytest.mark.parametrize(
    ("since", "recorded", "outcomes"),
    [(None, 3, (1, 2)), ("2026-11-01", 2, (1, 1))],
    ids=["all", "a month"],
)
def test_all_totals_count_the_same_runs(connection, since, recorded, outcomes):
    overview = History(connection).overview(since=since)

    assert (overview.funnel.recorded, overview.outcomes) == (recorded, outcomes)
