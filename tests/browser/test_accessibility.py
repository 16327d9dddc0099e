"""Accessibility: axe-core, the keyboard alone, both themes, no JavaScript."""

import os

import pytest
from addresses import PAGES

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SEEN = {
    "light": {"scheme": "light"},
    "dark": {"scheme": "dark"},
    "more contrast, light": {"scheme": "light", "prefers_contrast": "more"},
    "more contrast, dark": {"scheme": "dark", "prefers_contrast": "more"},
    "forced colours": {"scheme": "dark", "forced_colors": "active"},
}
BARRIERS = """
const done = arguments[0]
axe.run(document, {resultTypes: ["violations"]}).then(found => done(found.violations.map(
    one => [one.impact, one.id, one.nodes.map(node => node.html + " " + node.failureSummary)]
)))
"""
UNFOLD = "document.querySelectorAll('details').forEach(one => { one.open = true })"
FOCUSED = """[document.activeElement.tagName,
    document.activeElement.textContent.trim() || document.activeElement.name || '',
    getComputedStyle(document.activeElement).outlineStyle != 'none']"""


@pytest.fixture(scope="session")
def axe(repository):
    """The script of axe-core, which `make test-slow` fetches."""
    path = repository / "build" / "axe.min.js"
    if not path.exists():
        missing = "needs build/axe.min.js: make build/axe.min.js"
        pytest.fail(missing) if os.environ.get("KP_NEED_BROWSER") else pytest.skip(missing)
    return path.read_text()


@pytest.fixture
def barriers(browser, axe):
    """Return axe-core's findings on the open page, with everything unfolded."""

    def barriers():
        browser.driver.execute_script(UNFOLD)
        browser.driver.execute_script(axe)
        found = browser.driver.execute_async_script(BARRIERS)
        return [one for one in found if one[0] in {"serious", "critical"}]

    return barriers


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("seen", SEEN.values(), ids=SEEN)
@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_nothing_serious(browser, page, barriers, name, seen, width):
    browser.open(page.overview + PAGES[name], width=width, **seen)

    assert barriers() == []


@pytest.mark.parametrize("width", [1280, 390])
def test_axe_finds_nothing_serious_in_the_report(browser, barriers, report, width):
    browser.open(report, width=width)

    assert barriers() == []


def pressed(browser, *keys):
    for key in keys:
        browser.press(key)
    return browser.run(FOCUSED)


@pytest.mark.parametrize("name", PAGES)
def test_the_keyboard_reaches_everything_in_the_order_of_the_page(browser, page, name):
    browser.open(page.overview + PAGES[name])
    wanted = browser.run(
        "[...document.querySelectorAll('a[href]:not([tabindex]), button, input:not([type=hidden]),"
        ' select, summary, [tabindex="0"]\')].filter(one => one.checkVisibility()).length'
    )

    first = pressed(browser, "Tab")
    found = [first, *(pressed(browser, "Tab") for _ in range(wanted - 1))]

    assert first[1] == "Skip to content"
    assert all(is_seen for _, _, is_seen in found)
    assert len(found) == wanted
    places = browser.run(
        "[document.activeElement.textContent.trim(), document.activeElement.tagName]"
    )
    assert places == ["Datasette", "A"]


def test_a_bar_is_opened_with_the_keyboard_alone(browser, page):
    browser.open(page.overview)
    browser.run("document.querySelector('a.kp-bar-row').focus()")

    browser.press("Enter")
    browser.wait_for("table.kp-runs")

    assert browser.driver.current_url.partition("?")[0].endswith("/runs")


def test_without_javascript_every_page_is_the_same(browser, page):
    shown = {}
    for is_off in (False, True):
        browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": is_off})
        for name, path in PAGES.items():
            browser.open(page.overview + path)
            shown.setdefault(name, []).append(browser.all("main")[0].text)
    browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})

    assert all(with_it == without for with_it, without in shown.values())


def test_a_filter_is_sent_without_javascript(browser, page):
    browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    browser.open(page.overview + "/runs")
    browser.all("select[name=outcome] option[value=failed]")[0].click()
    browser.all("form.kp-filters button")[0].click()
    browser.wait_for("option[value=failed][selected]")
    browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})

    assert {one.text for one in browser.all("main .kp-outcome")} == {"failed"}


@pytest.mark.parametrize("chosen", ["dark", "light"])
def test_a_theme_is_chosen_by_a_link_against_the_system(browser, page, chosen):
    other = {"dark": "light", "light": "dark"}[chosen]
    browser.open(page.overview + "/runs", scheme=other)

    browser.link(chosen).click()
    browser.wait_for(f"body.kp-{chosen}")
    colour = browser.run("getComputedStyle(document.body).backgroundColor")
    browser.link("system").click()
    browser.wait_for("body.kp:not(.kp-dark):not(.kp-light)")

    assert colour != browser.run("getComputedStyle(document.body).backgroundColor")
