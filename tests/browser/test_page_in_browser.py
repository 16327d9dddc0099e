"""The page in a real browser."""

import json
import re

import pytest
from addresses import PAGES

from kp_middleware.web.server import LinkFile

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

WIDTHS = (1400, 1100, 820, 768, 390)
TEXTS = "[...document.querySelectorAll('svg.kp-picture text')]"
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


def test_nothing_is_wrong_and_nobody_else_is_asked(browser, address):
    browser.complaints(), browser.hosts()

    browser.open(address)

    assert [one for one in browser.complaints() if "404 (Not Found)" not in one] == []
    assert browser.hosts() == {"127.0.0.1"}


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


def test_the_link_works_also_where_a_page_of_somebody_else_leads_to_it(new_browser, serve, month):
    browser, page = new_browser(), serve(month)
    browser.open(f"data:text/html,<a href='{page.link}'>open</a>")

    browser.all("a")[0].click()
    browser.wait_for("h1")

    assert browser.driver.current_url == page.overview


def test_a_file_that_leads_on_to_the_link_opens_the_page(new_browser, serve, month):
    browser, page, file = new_browser(), serve(month), LinkFile()

    browser.open(file.write(page.link))
    browser.wait_for("h1")
    file.close()

    assert browser.driver.current_url == page.overview


def test_no_script_is_there_and_none_would_run(browser, address):
    browser.open(address)

    assert browser.all("script") == []
    browser.run(
        "document.body.append(Object.assign(document.createElement('script'),"
        " {textContent: 'window.ran = true'}))"
    )
    assert browser.run("window.ran") is None
    assert "script-src 'none'" in browser.complaints()[-1]


@pytest.mark.parametrize("width", WIDTHS)
def test_letters_in_pictures_can_be_read_and_do_not_outgrow_the_headings(browser, address, width):
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


@pytest.mark.parametrize("width", [1400, 390])
def test_no_text_leaves_its_picture_or_meets_another_in_its_line(browser, address, width):
    browser.open(address, width=width)

    assert browser.run(OUTSIDE) == []
    assert browser.run(MEETING) == []


@pytest.mark.parametrize("width", [1400, 390])
def test_what_folds_and_unfolds_is_large_enough_to_be_hit(browser, address, width):
    browser.open(address, width=width)

    heights = browser.run(
        "[...document.querySelectorAll('summary')].map(one => one.getBoundingClientRect().height)"
    )

    assert min(heights, default=24) >= 24


def test_it_fits_a_phone(browser, address):
    browser.open(address, width=390)

    assert browser.width() <= 390


def test_fifty_runs_are_not_an_endless_list_on_a_phone(browser, page):
    browser.open(page.overview + "/runs", width=390)

    assert len(browser.all("table.kp-runs tbody tr")) == 50
    assert browser.run("document.documentElement.scrollHeight") <= 6_000


def test_who_cannot_see_the_pictures_is_told_what_they_show(browser, page):
    browser.open(page.overview)

    cards = browser.all("figure.kp-card")

    assert len(cards) >= 6
    for card in cards:
        picture = card.find_element("css selector", "svg[role=img], [role=group]")
        assert picture.get_attribute("aria-label")
        assert card.find_elements("css selector", "details table tbody tr")


def test_every_mark_that_leads_somewhere_says_what_it_is(browser, page):
    browser.open(page.overview)

    marks = browser.all("svg.kp-picture a")

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
