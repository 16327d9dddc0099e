"""The page in a real browser."""

import json
import re

import pytest
from addresses import PAGES

from kp_middleware.web.server import LinkFile

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

WIDTHS = (1400, 1100, 820, 768, 390)
TEXTS = "[...document.querySelectorAll('svg.kp-picture text')]"
FOLDS = "[...document.querySelectorAll('summary')].map(one => one.getBoundingClientRect().height)"
OUTSIDE = f"""{TEXTS}.filter(text => {{
    const box = text.getBBox(), drawing = text.ownerSVGElement.viewBox.baseVal
    return box.x < -1 || box.x + box.width > drawing.width + 1
}}).map(text => text.textContent)"""
MEETING = f"""{TEXTS}.flatMap(one => [
    ...one.ownerSVGElement.querySelectorAll('text')
].filter(two => {{
    const a = one.getBBox(), b = two.getBBox()
    const isInItsLine = Math.abs(a.y - b.y) < 4
    return one !== two && isInItsLine && a.x <= b.x && a.x + a.width > b.x
        && one.getCTM().e === two.getCTM().e && one.getCTM().f === two.getCTM().f
}}).map(two => one.textContent + ' | ' + two.textContent))"""


@pytest.fixture(params=PAGES.values(), ids=PAGES)
def address(request, page):
    return page.overview + request.param


def picture_of(browser, title):
    """The figure in the card with this title."""
    return next(
        figure
        for figure in browser.all("figure.kp-card")
        if figure.find_element("css selector", "h2").text == title
    )


def test_nothing_is_wrong_nobody_else_is_asked_and_no_script_would_run(browser, address):
    browser.complaints(), browser.hosts()

    browser.open(address)

    assert [one for one in browser.complaints() if "404 (Not Found)" not in one] == []
    assert browser.hosts() == {"127.0.0.1"}
    assert browser.all("script") == []
    browser.run(
        "document.body.append(Object.assign(document.createElement('script'),"
        " {textContent: 'window.ran = true'}))"
    )
    assert browser.run("window.ran") is None
    assert "script-src 'none'" in browser.complaints()[-1]


def test_a_bar_leads_to_its_traces_and_on_to_a_score_that_adds_up(browser, page, command):
    browser.open(page.overview)
    bar = picture_of(browser, "Scores").find_elements("css selector", "svg a")[-1]
    low = float(
        re.match(r"[\d.]+", bar.find_element("css selector", "title").get_attribute("textContent"))[
            0
        ]
    )

    bar.click()
    row = browser.all("table.kp-runs tbody tr")[0]
    score = float(row.find_element("css selector", "td[data-name=score]").text)
    row.find_element("css selector", "a").click()

    assert low <= score <= 1
    trace = json.loads(command("show", browser.driver.current_url.rpartition("/")[2], "--json"))
    picture = picture_of(browser, f"Score {score:.3f}")
    shown = [bold.text.replace("\u2212", "-") for bold in picture.find_elements("tag name", "b")]
    amounts = [float(text) for text in shown if text[:1] in {"+", "-"}]
    assert len(amounts) == len(trace["arithmetic"]) - 1
    assert sum(amounts) == pytest.approx(round(trace["score"], 3))
    assert f"{trace['score']:.3f}" in shown
    assert trace["objective"] in browser.all("h1")[0].text


def test_the_search_finds_what_a_person_means(browser, page):
    browser.open(page.overview)
    box = browser.all("input[type=search]")[0]

    box.send_keys("invoices\n")
    browser.wait_for("input[value=invoices]")

    found = [row.text for row in browser.all("main tbody tr")]
    assert found
    assert all("invoice" in row for row in found)
    browser.all("main tbody a")[0].click()
    browser.wait_for("ol.kp-steps")


@pytest.mark.usefixtures("browser")
def test_another_browser_cannot_use_the_link_again(new_browser, page):
    other = new_browser()

    other.open(page.link)

    assert "already used" in other.all("body")[0].text
    other.open(page.overview)
    assert "Open the link" in other.all("body")[0].text


@pytest.mark.parametrize("leads_by", ["another page", "a file"])
def test_the_link_works_also_where_something_else_leads_to_it(new_browser, serve, month, leads_by):
    browser, page, file = new_browser(), serve(month), LinkFile()

    if leads_by == "a file":
        browser.open(file.write(page.link))
    else:
        browser.open(f"data:text/html,<a href='{page.link}'>open</a>")
        browser.all("a")[0].click()
    browser.wait_for("h1")
    file.close()

    assert browser.driver.current_url == page.overview


@pytest.mark.parametrize("width", WIDTHS)
def test_it_can_be_read_and_hit_and_fits_whatever_the_width(browser, address, width):
    browser.open(address, width=width)

    sizes = browser.run(
        f"{TEXTS}.map(text => parseFloat(getComputedStyle(text).fontSize)"
        " * text.ownerSVGElement.getScreenCTM().a)"
    )
    heading = browser.run(
        "parseFloat(getComputedStyle(document.querySelector('h2, h1:only-of-type')).fontSize)"
    )

    assert min(sizes, default=10) >= 10
    assert max(sizes, default=0) < heading
    assert browser.run(OUTSIDE) == []
    assert browser.run(MEETING) == []
    assert min(browser.run(FOLDS), default=24) >= 24
    assert browser.width() <= width


@pytest.mark.parametrize("search", ["", "?q=the"], ids=["all", "with a passage of each"])
def test_fifty_runs_are_not_an_endless_list_on_a_phone(browser, page, search):
    browser.open(page.overview + "/runs" + search, width=390)

    assert len(browser.all("table.kp-runs tbody tr")) == 50
    assert browser.run("document.documentElement.scrollHeight") <= 6_000


def test_pictures_and_marks_say_what_they_show_and_where_they_lead(browser, page):
    browser.open(page.overview)

    cards, marks = browser.all("figure.kp-card"), browser.all("svg.kp-picture a")

    assert len(cards) >= 6
    for card in cards:
        picture = card.find_element("css selector", "svg[role=img], [role=group]")
        assert picture.get_attribute("aria-label")
        text = "details table tbody tr, .kp-bar-name"  # a bar has its name and amount beside it
        assert card.find_elements("css selector", text)
    assert len(marks) > 50
    assert all(
        browser.run(
            "[...document.querySelectorAll('svg.kp-picture a')]"
            ".map(mark => Boolean(mark.querySelector('title') || mark.textContent.trim()))"
        )
    )


@pytest.mark.parametrize("width", [1280, 768, 390])
@pytest.mark.parametrize("name", PAGES)
def test_it_can_be_looked_at(browser, page, screenshots, name, width):
    browser.open(page.overview + PAGES[name], width=width)

    browser.keep_picture(screenshots / f"{name}-{width}.png", width=width)
