"""The report in a real browser, from the disk."""

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


PAPER = "getComputedStyle(document.body).backgroundColor"


def test_it_opens_from_the_disk_in_both_themes_on_a_phone_and_asks_nobody(browser, report):
    browser.complaints(), browser.hosts()

    browser.open(report, scheme="light")
    light = browser.run(PAPER)
    browser.open(report, scheme="dark", width=390)

    assert browser.all("h1")[0].text == "What your agents did"
    assert (light, browser.run(PAPER)) == ("rgb(247, 247, 245)", "rgb(20, 23, 28)")
    assert browser.width() <= 390
    assert browser.complaints() == []
    assert browser.hosts() == set()


def test_a_run_in_the_list_leads_to_it_in_full(browser, report):
    browser.open(report)
    link = browser.all("table.kp-runs a")[0]
    title = link.text

    link.click()

    (run,) = browser.all("section:target")
    assert title in run.text
    assert browser.run("arguments[0].getBoundingClientRect().top", run) < 900


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_can_be_looked_at(browser, report, screenshots, scheme, width):
    browser.open(report, width=width, scheme=scheme)

    browser.keep_picture(screenshots / f"report-{scheme}-{width}.png", width=width)
