"""The report in a real browser, from the disk."""

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_it_opens_from_the_disk_and_asks_nobody(browser, report):
    browser.complaints(), browser.hosts()

    browser.open(report)

    assert browser.all("h1")[0].text == "What your agents did"
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


def test_it_turns_dark_with_the_reader(browser, report):
    paper = "getComputedStyle(document.body).backgroundColor"
    browser.open(report, scheme="light")
    light = browser.run(paper)

    browser.open(report, scheme="dark")

    assert light == "rgb(247, 247, 245)"
    assert browser.run(paper) == "rgb(20, 23, 28)"


def test_it_fits_a_phone(browser, report):
    browser.open(report, width=390)

    assert browser.width() <= 390


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_can_be_looked_at(browser, report, screenshots, scheme, width):
    browser.open(report, width=width, scheme=scheme)

    browser.keep_picture(screenshots / f"report-{scheme}-{width}.png", width=width)
