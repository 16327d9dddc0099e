"""The pages of runs, of two runs, of a conversation and of review, in Datasette."""

import asyncio
import html
import re
import shutil
import sqlite3
from contextlib import closing
from urllib.parse import quote

import pytest
from in_datasette import OVERVIEW, RUNS, Shown, links
from sample_runs import put, run, step, with_value

from kp_middleware.locations import prices_file


@pytest.fixture(scope="module")
def module_runner():
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="module")
def three_runs(tmp_path_factory):
    """A file with three runs that differ in everything that a filter asks for."""
    db = tmp_path_factory.mktemp("three") / "kp.db"
    put(db, run("fix the leak", step("thought", content="hm"), id="one"), with_value(0.9))
    put(db, run("write a poem", step("tool_call", tool="pen"), id="two"), with_value(0.3))
    put(db, run("sum up the trial", step("thought", content="leak"), id="three"))
    with closing(sqlite3.connect(db)) as connection, connection:
        connection.executescript(
            "UPDATE traces SET domain='code', model='big', agent_name='Ann', duration_ms=900,"
            " success=1, success_source='feedback', thread_id='t/1', started_at='2026-11-01T08:00'"
            " WHERE id='kp:trace:one';"
            "UPDATE traces SET domain='art', model='small', success=0, duration_ms=100,"
            " input_tokens=5, output_tokens=7, started_at='2026-11-02T08:00'"
            " WHERE id='kp:trace:two';"
            "UPDATE traces SET domain='law', score=NULL, state='recorded', thread_id='t/1',"
            " duration_ms=NULL, success_source='assumed', started_at='2026-11-03T08:00'"
            " WHERE id='kp:trace:three';"
        )
    return db


@pytest.fixture(scope="module")
def shown(module_runner, three_runs):
    return Shown(module_runner, three_runs)


@pytest.fixture
def change(three_runs, db, show):
    """Changes a copy of the three runs by a statement, and shows it."""

    def run(sql):
        shutil.copy(three_runs, db)
        update(db, sql)
        return show(db)

    return run


def update(db, sql, *values):
    with closing(sqlite3.connect(db)) as connection, connection:
        connection.execute(sql, values)


def listed(page):
    return [
        html.unescape(name)
        for name in re.findall(r'class="kp-title"><a[^>]*><bdi>(.*?)</', page.text)
    ]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", ["sum up the trial", "write a poem", "fix the leak"]),
        ("?asc=1", ["fix the leak", "write a poem", "sum up the trial"]),
        ("?sort=score", ["fix the leak", "write a poem", "sum up the trial"]),
        ("?sort=score&asc=1", ["write a poem", "fix the leak", "sum up the trial"]),
        ("?sort=duration", ["fix the leak", "write a poem", "sum up the trial"]),
        ("?sort=tokens", ["write a poem", "sum up the trial", "fix the leak"]),
        ("?sort=domain", ["sum up the trial", "fix the leak", "write a poem"]),
        ("?sort=outcome&asc=1", ["write a poem", "sum up the trial", "fix the leak"]),
        ("?sort=state&asc=1", ["fix the leak", "sum up the trial", "write a poem"]),
        ("?sort=nonsense", ["sum up the trial", "write a poem", "fix the leak"]),
        ("?domain=art", ["write a poem"]),
        ("?outcome=succeeded", ["fix the leak"]),
        ("?outcome=failed", ["write a poem"]),
        ("?outcome=not+known", ["sum up the trial"]),
        ("?outcome=perhaps", ["sum up the trial", "write a poem", "fix the leak"]),
        ("?state=recorded", ["sum up the trial"]),
        ("?tool=pen", ["write a poem"]),
        ("?failing=pen", []),
        ("?error=ValueError", []),
        ("?model=big", ["fix the leak"]),
        ("?agent=Ann", ["fix the leak"]),
        ("?thread=t/1", ["sum up the trial", "fix the leak"]),
        ("?min_score=0.3&max_score=0.9", ["write a poem"]),
        ("?min_score=many", ["sum up the trial", "write a poem", "fix the leak"]),
        ("?since=2026-11-02&until=2026-11-03", ["write a poem"]),
        ("?q=poem", ["write a poem"]),
        ("?q=leak&domain=code", ["fix the leak"]),
        ("?q=leak&sort=started", ["sum up the trial", "fix the leak"]),
        ("?domain=none", []),
    ],
)
def test_runs_are_found_and_sorted_by_their_address(shown, query, found):
    page = shown.get(f"{RUNS}{query}")

    assert page.status_code == 200
    assert listed(page) == found


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("", "3 runs; newest first."),
        ("?domain=art&asc=1", "1 run, art; oldest first."),
        ("?outcome=failed&sort=score", "1 run, failed; by score, descending."),
        ("?q=leak", "2 runs, with “leak”; best match first."),
        ("?min_score=0.5&since=7d", "No run matches: score 0.5 or more, of the last 7 days."),
    ],
)
def test_a_page_says_in_words_what_its_address_asks_for(shown, query, words):
    assert words in html.unescape(shown.get(f"{RUNS}{query}").text)


def test_the_form_keeps_the_day_that_a_number_of_the_overview_asked_for(shown):
    page = shown.get(f"{RUNS}?since=2026-10-25").text

    assert '<option value="2026-10-25" selected="">2026-10-25</option>' in page


@pytest.mark.parametrize("sort", ["", "&sort=score", "&sort=domain&asc=1"])
def test_words_that_were_found_are_marked(shown, sort):
    page = shown.get(f"{RUNS}?q=leak{sort}").text

    assert "<mark>leak</mark>" in page
    assert 'value="leak"' in page


@pytest.mark.parametrize("sort", ["", "&sort=score"])
def test_brackets_of_a_text_are_no_marks(show, db, sort):
    put(db, run("keep [TODO] and leak]s of [日本]", step("thought")))
    shown = show(db)

    page = shown.get(f"{RUNS}?q=leak{sort}").text

    assert "keep [TODO] and <mark>leak</mark>]s of" in page
    assert "[<mark>日本</mark>]" in shown.get(f"{RUNS}?q=日本{sort}").text


@pytest.mark.parametrize("words", ['"', '"zz', "AND", "*", "a NEAR(", "\x00", "none", "<script>"])
def test_what_was_searched_for_is_text(shown, words):
    page = shown.get(f"{RUNS}?q={quote(words)}")

    assert page.status_code == 200
    assert "No run matches: with " in page.text
    assert "<script" not in page.text


@pytest.fixture(scope="module")
def many_runs(module_runner, tmp_path_factory):
    """120 runs, of which a third has no score."""
    db = tmp_path_factory.mktemp("many") / "kp.db"
    for number in range(120):
        value = with_value(round(number % 7 / 10, 1)) if number % 3 else None
        put(db, run(f"fix the leak of {number}", step("thought")), value)
    return Shown(module_runner, db)


@pytest.mark.parametrize("sort", ["started", "score", "tokens", "outcome"])
@pytest.mark.parametrize("query", ["", "&asc=1", "&q=leak"])
def test_pages_hold_every_run_once(many_runs, sort, query):
    titles, href = [], f"{RUNS}?sort={sort}{query}"
    while href:
        page = many_runs.get(href)
        titles.append(listed(page))
        (href,) = re.findall(r'href="([^"]*)" accesskey="n"', page.text) or [None]
        href = href and html.unescape(href)

    assert [*map(len, titles)] == [50, 50, 20]
    assert len({title for page in titles for title in page}) == 120


@pytest.mark.parametrize("after", ["x", "[1]", '["a", "b"]', "99999999999999", "-1", "null"])
def test_an_address_that_continues_nothing_shows_the_first_page(shown, after):
    page = shown.get(f"{RUNS}?after={quote(after)}")

    assert page.status_code == 200
    assert len(listed(page)) == 3


def test_two_runs_are_compared_step_by_step(show, db):
    put(db, run("one", step("tool_call", tool="pen", input={"ink": "blue", "size": 1}), id="a"))
    put(db, run("two", step("tool_call", tool="pen", input={"ink": "red", "size": 1}), id="b"))

    page = show(db).get(f"{OVERVIEW}/compare?left=a&right=b").text

    assert re.findall("<mark>(.*?)</mark>", page) == ["blue", "red"]
    assert "left=kp%3Atrace%3Ab&amp;right=kp%3Atrace%3Aa" in page


@pytest.mark.parametrize("query", ["", "?left=a", "?left=x&right=y"])
def test_a_comparison_with_nothing_is_not_found(shown, query):
    assert shown.get(f"{OVERVIEW}/compare{query}").status_code == 404


def test_each_agent_has_a_lane_and_waiting_is_seen(show, db):
    put(db, run("one", *(step("tool_call", tool=name) for name in "abc"), id="one"))
    for place, (agent, began, took) in enumerate([("ann", 0, 10), ("bob", 5, 10), ("ann", 25, 5)]):
        update(
            db,
            "UPDATE steps SET agent = ?, latency_ms = ?, started_at ="
            " (SELECT substr(started_at, 1, 20) FROM traces) || ? WHERE step_id = ?",
            *(agent, took, f"{500 + began}Z", place),
        )
    update(db, "UPDATE traces SET duration_ms = 30, started_at = substr(started_at, 1, 20)||'500Z'")

    page = show(db).get(f"{OVERVIEW}/traces/one").text
    timeline = page[page.index("Timeline</h2>") : page.index("Steps</h2>")]

    rows = re.findall(r'kp-bar-name"><bdi>(.*?)</bdi>.*?<b>(.*?)</b>', timeline, re.DOTALL)
    assert [name for name, _ in rows] == ["waiting", "ann", "a", "c", "bob", "b"]
    assert dict(rows) == {
        "waiting": "10\xa0ms",
        "ann": "30\xa0ms",
        "a": "10\xa0ms",
        "c": "5\xa0ms",
        "bob": "10\xa0ms",
        "b": "10\xa0ms",
    }
    assert 'href="#step-2"' in timeline


def test_a_run_names_those_that_it_was_told_of(change, shown):
    changed = change(
        """UPDATE traces SET recalled = '["kp:trace:one", "gone"]' WHERE id LIKE '%two'"""
    )

    page = changed.get(f"{OVERVIEW}/traces/two")

    assert listed(page) == ["fix the leak"]
    assert "Recalled runs" in page.text
    assert "Recalled runs" not in shown.get(f"{OVERVIEW}/traces/one").text


def test_costs_are_on_every_page_where_there_are_prices(shown):
    pages = ("", "/runs", "/traces/two")
    assert not any("EUR" in shown.get(OVERVIEW + page).text for page in pages)

    prices_file().parent.mkdir(parents=True)
    prices_file().write_text('currency = "EUR"\n[models.small]\ninput = 1000000\noutput = 2000000')

    assert all("19.00\xa0EUR" in shown.get(OVERVIEW + page).text for page in pages)
    prices_file().write_text("models = 3")
    assert all("No costs are shown" in shown.get(OVERVIEW + page).text for page in pages)


def test_the_overview_is_of_30_days_and_so_are_its_links(change, shown):
    assert "The 30 days up to" not in shown.get(OVERVIEW).text
    changed = change("UPDATE traces SET started_at = '2026-09-01T08:00' WHERE id LIKE '%one'")

    page = changed.get(OVERVIEW).text
    (every,) = re.findall(r'up to the newest run. <a href="([^"]*)"', page)

    assert 'href="/-/kp/kp/runs?since=2026-10-05"><bdi>2</bdi>' in page
    assert "<bdi>3</bdi></a></dd></div>\n<div><dt>succeeded" in changed.get(every).text


def test_what_failed_leads_to_the_runs_in_which_it_did(show, db):
    put(db, run("one", step("error_recovery", tool="pen", content="dry"), id="one"))
    put(db, run("two", step("tool_call", tool="pen"), id="two"))
    page = show(db)

    (href,) = [one for one in links(page.get(OVERVIEW)) if one.endswith("failing=pen")]

    assert listed(page.get(href)) == ["one"]
    assert "pen failed in it" in page.get(href).text


def test_how_well_a_score_tells_success_is_a_number(show, db):
    for number, score in enumerate((0.2, 0.4, 0.6, 0.8)):
        put(db, run(f"run {number}", step("thought"), success=number in {1, 3}), with_value(score))
    update(db, "UPDATE traces SET success_source = 'feedback'")

    page = html.unescape(show(db).get(OVERVIEW).text)

    assert "scores higher than a failed one in 75% of all pairs" in page


def test_a_conversation_is_one_page(shown):
    run = shown.get(f"{OVERVIEW}/traces/one")
    (href,) = {one for one in links(run) if "/conversations/" in one}

    page = shown.get(href).text

    assert page.index("fix the leak") < page.index("sum up the trial")
    assert "write a poem" not in page


def test_a_run_has_its_markdown_at_an_address(shown):
    page = shown.get(f"{OVERVIEW}/traces/one.md")

    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/plain")
    assert page.text.startswith("# `fix the leak`\n")
    assert shown.get(f"{OVERVIEW}/traces/none.md").status_code == 404


def test_a_theme_is_kept_and_leads_back(shown):
    page = shown.get(f"{OVERVIEW}/theme/dark?to={quote(RUNS)}")
    (cookie,) = page.headers.get_list("set-cookie")

    assert page.headers["location"] == RUNS
    dark = shown.get(RUNS, headers={"cookie": cookie.split(";")[0]}).text
    assert '<body class="kp kp-dark">' in dark
    assert '<body class="kp">' in shown.get(RUNS).text


@pytest.mark.parametrize("to", ["https://evil.example", "//evil.example", "/\\evil.example", ""])
def test_a_theme_leads_nowhere_else(shown, to):
    page = shown.get(f"{OVERVIEW}/theme/light?to={quote(to, safe='')}")

    assert page.headers["location"] == "/"


def success_of(db, name):
    with closing(sqlite3.connect(db)) as connection:
        return connection.execute(
            "SELECT success, success_source FROM traces WHERE id = ?", (name,)
        ).fetchone()


def asked(page):
    (name,) = re.findall(r'name="trace_id" value="([^"]*)"', page) or [None]
    return name


@pytest.fixture
def unjudged(db):
    for number in range(3):
        put(db, run(f"task {number}", step("thought"), id=f"run-{number}"), with_value(0.5))
    update(db, "UPDATE traces SET state = 'scored', success_source = 'assumed'")
    return db


def test_an_answer_is_feedback_and_the_next_run_is_asked_about(show, unjudged):
    shown = show(unjudged, form_key="secret")
    first = asked(shown.get(f"{OVERVIEW}/review").text)

    page = shown.post(f"{OVERVIEW}/review", trace_id=first, token="secret", success="no")

    assert page.status_code == 200
    assert "Saved: failed." in page.text
    assert success_of(unjudged, first) == (0, "feedback")
    assert asked(page.text) not in {first, None}


def test_a_run_can_be_skipped(show, unjudged):
    shown = show(unjudged, form_key="secret")
    page, seen = shown.get(f"{OVERVIEW}/review").text, []
    while name := asked(page):
        seen.append(name)
        (href,) = re.findall(r'href="([^"]*)" accesskey="k"', page)
        page = shown.get(html.unescape(href)).text

    assert sorted(seen) == [f"kp:trace:run-{number}" for number in range(3)]
    assert "Nothing to review" in page


def assert_refused(shown, db, token):
    """An answer with this token is not saved."""
    name = "kp:trace:run-1"
    page = shown.post(f"{OVERVIEW}/review", trace_id=name, token=token, success="no")
    assert page.status_code == 403
    assert success_of(db, name)[1] != "feedback"


@pytest.mark.parametrize("token", ["", "wrong", "é"])
def test_a_forged_answer_is_refused(show, unjudged, token):
    assert_refused(show(unjudged, form_key="secret"), unjudged, token)


def test_where_there_is_no_one_time_link_nothing_is_written(show, unjudged):
    shown = show(unjudged)

    page = shown.get(f"{OVERVIEW}/review").text

    assert "kp-middleware review" in page
    assert asked(page) is None
    assert_refused(shown, unjudged, "")
