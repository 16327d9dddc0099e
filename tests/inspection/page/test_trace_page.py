import json

import pytest
from page_reading import NoWays, card, hrefs, parsed, text_of, titles_of_cards

from kp_middleware import current_trace
from kp_middleware.inspection.page import FULL


def test_the_page_of_a_trace_says_why_where_and_what(work, trace_page):
    work("an earlier one")
    work("fix the test")

    page = trace_page()

    assert parsed(page).find("header/h1/bdi").text == "fix the test"
    assert titles_of_cards(page)[1:] == [
        "What left this machine",
        "Most like it",
        "Steps",
        "Result",
    ]
    assert titles_of_cards(page)[0].startswith("Score 0.")
    assert "Kept here: " in text_of(page)
    assert "there is no API key" in text_of(page)


def test_steps_come_in_order_with_what_they_said(work, trace_page):
    work("fix the test")

    steps = parsed(trace_page()).findall(".//ol/li")

    assert [step.find("header/b").text for step in steps] == ["Thought", "Tool call", "Observation"]
    assert "I think of fix the test" in "".join(steps[0].itertext())
    assert "FIX THE TEST" in "".join(steps[2].itertext())


def test_what_is_most_like_it_comes_first_and_leads_there(work, trace_page):
    work("book a flight to Rome")
    work("fix the flaky test")
    work("fix the flaky test now")

    frame = card(trace_page(), "Most like it")

    rows = ["".join(row.itertext()) for row in frame.findall("table/tbody/tr")]
    assert rows[0].startswith("fix the flaky test")
    assert rows[1].startswith("book a flight")
    assert frame.find("table/tbody/tr/td/a").get("href").startswith("/trace/kp:trace:")
    assert len(frame.findall(".//{http://www.w3.org/2000/svg}line")) == 2


def test_a_trace_that_is_alone_says_so(work, trace_page):
    work("one")

    assert "Nothing to compare" in text_of(trace_page())


def test_what_was_sent_is_shown_as_it_is(work, trace_page):
    work("one")
    body = json.dumps({"task": {"objective": "</pre><b>é"}})

    shown = card(trace_page(body=body), "What left this machine")

    assert json.loads("".join(shown.find("details/pre").itertext())) == json.loads(body)
    assert shown.find("details/summary").text == f"The exact body, {len(body)} bytes, indented"


def test_what_does_not_fit_is_cut_and_counted(kp, trace_page):
    @kp.capture
    def talk(question):
        for number in range(6):
            current_trace().thought(f"{number} " + "x" * 300)
        return question * 2

    talk("y" * 1000)
    extent = FULL._replace(steps=2, characters=100, body=20)

    page = trace_page(extent=extent, body=json.dumps(["w" * 100]))

    assert "more steps are not shown here" in text_of(page)
    assert len(parsed(page).findall(".//ol/li")) == 2
    assert "(1,900 more characters)" in text_of(page)
    assert "more characters" in "".join(parsed(page).find(".//pre").itertext())


def test_a_run_without_a_score_says_why(work, connection, trace_page):
    work("one")
    connection.execute("UPDATE traces SET score = NULL, threshold = NULL, state = 'recorded'")

    page = trace_page()

    assert titles_of_cards(page)[0] == "Score"
    assert "No score yet: kept here, not scored yet" in text_of(page)


@pytest.mark.parametrize(
    "name", ['</script><img src=x onerror="alert(1)">', "\u202eabc", "\x00\x1b[2J", "x" * 10_000]
)
def test_no_text_of_a_trace_can_break_its_page(work, trace_page, name):
    work(name, domain=name[:500])
    work(f"{name} again", domain=name[:500])

    page = trace_page(NoWays(), body=json.dumps({"x": name.replace("\x00", "")}))

    assert [*parsed(page).iter("img")] == []
    assert hrefs(page) == []
