import json

import pytest
from page_reading import NoLinks, card, hrefs, parsed, text_of, titles_of_cards

from kp_middleware import current_trace
from kp_middleware.web.pages import FULL_EXTENT


def test_the_page_of_a_trace_says_why_where_and_what(work, trace_page):
    work("an earlier one")
    work("fix the test")

    page = trace_page()

    assert parsed(page).find("header/h1/bdi").text == "fix the test"
    titles = titles_of_cards(page)
    assert titles[1:3] == ["Steps", "Result"]
    assert titles[4:] == ["Sent data", "Similar runs"]
    assert titles[3].startswith("Score 0.")
    assert "Kept here: " in text_of(page)
    assert "there is no API key" in text_of(page)
    steps = parsed(page).findall(".//ol/li")
    assert [step.find("header/b").text for step in steps] == ["Agent", "Call", "Result"]
    assert "I think of fix the test" in "".join(steps[0].itertext())
    assert "FIX THE TEST" in "".join(steps[2].itertext())


def test_what_is_not_known_is_estimated_with_reasons(work, trace_page, kp):
    work("an earlier one")
    kp.feedback(kp.runs()[0].id, success=True)

    work("fix the test")

    told = text_of(trace_page())
    assert "outcome: not known" in told
    assert "P(success) was estimated as 0." in told


def test_the_error_that_ended_a_run_is_no_result(kp, trace_page):
    @kp.tool
    def look(_):
        raise LookupError("no such page")

    with pytest.raises(LookupError):
        kp.capture(look)("fix the test")

    page = trace_page()
    last = parsed(page).findall(".//ol/li")[-1]
    assert last.find("header/b").text == "Error"
    assert last.get("class") == "kp-step kp-error"
    assert "kp-loss" in "".join(
        piece.get("class") for piece in card(page, "Timeline").iter() if piece.get("class")
    )


def test_what_is_most_like_it_comes_first_and_leads_there(work, trace_page):
    work("book a flight to Rome")
    work("fix the flaky test")
    work("fix the flaky test now")

    frame = card(trace_page(), "Similar runs")

    rows = ["".join(row.itertext()) for row in frame.findall("table/tbody/tr")]
    assert rows[0].startswith("fix the flaky test")
    assert rows[1].startswith("book a flight")
    assert frame.find("table/tbody/tr/td/a").get("href").startswith("/trace/kp:trace:")
    lines = frame.findall(".//{http://www.w3.org/2000/svg}polyline")
    assert [line.get("class") for line in lines] == ["kp-link"] * 2


def test_among_whom_it_was_compared_is_said(work, trace_page):
    work("one")
    assert "Nothing to compare" in text_of(trace_page())
    work("two")

    assert "among the 2,000 newest runs." in text_of(trace_page())


def test_what_was_sent_is_shown_as_it_is(work, trace_page):
    work("one")
    body = json.dumps({"task": {"objective": "</pre><b>é"}})

    shown = card(trace_page(around={"body": body}), "Sent data")

    assert json.loads("".join(shown.find("details/pre").itertext())) == json.loads(body)
    assert shown.find("details/summary").text == f"Exact body, {len(body)} bytes (indented here)"


def test_what_does_not_fit_is_cut_and_counted(kp, trace_page):
    @kp.capture
    def talk(question):
        for number in range(6):
            current_trace().thought(f"{number} " + "x" * 300)
        return question * 2

    talk("y" * 1000)
    extent = FULL_EXTENT._replace(steps=2, characters=100, body=20)

    page = trace_page(extent=extent, around={"body": json.dumps(["w" * 100])})

    assert "more steps are not shown here" in text_of(page)
    assert len(parsed(page).findall(".//ol/li")) == 2
    assert "(1,900 more characters)" in text_of(page)
    assert "more characters" in "".join(parsed(page).find(".//pre").itertext())


def test_a_run_without_a_score_or_an_objective_says_so(work, connection, trace_page):
    work("one")
    connection.execute(
        "UPDATE traces SET score = NULL, threshold = NULL, state = 'recorded', objective = ' \n',"
        " duration_ms = 102"
    )
    connection.execute("UPDATE steps SET latency_ms = 0")

    page = trace_page()

    assert titles_of_cards(page)[:4] == ["Timeline", "Steps", "Result", "Score"]
    assert "No score yet: kept here, not scored yet" in text_of(page)
    assert parsed(page).find("header/h1/bdi").text == "(no objective)"
    assert {"102\xa0ms", "3\xa0steps"} <= {
        "".join(one.itertext()) for one in parsed(page).iter("span")
    }


@pytest.mark.parametrize(
    "name", ['</script><img src=x onerror="alert(1)">', "\u202eabc", "\x00\x1b[2J", "x" * 10_000]
)
def test_no_text_of_a_trace_can_break_its_page(work, trace_page, name):
    work(name, domain=name[:500])
    work(f"{name} again", domain=name[:500])

    page = trace_page(NoLinks(), around={"body": json.dumps({"x": name.replace("\x00", "")})})

    assert [*parsed(page).iter("img")] == []
    assert {*hrefs(page)} <= {"#step-2"}
