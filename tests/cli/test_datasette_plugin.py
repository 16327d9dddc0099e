"""Our pages in Datasette, as ``datasette kp.db`` shows them; also run with Datasette 1.0a."""

import asyncio
import re
import sqlite3
from contextlib import closing
from functools import partial

import pytest
from datasette import __version__
from datasette.app import Datasette
from hand_made import put, run, step, with_value

from kp_middleware.database import SCHEMA, connect
from kp_middleware.web.plugin import kp_databases

OVERVIEW = "/-/kp/kp"
RUNS = f"{OVERVIEW}/runs"
ANNA = {"id": "anna"}


class Shown:
    """A Datasette with these files, in this process."""

    def __init__(self, runner, *files, allow=None, **settings):
        told = {"metadata" if __version__.startswith("0.") else "config": allow or {}}
        self._runner = runner
        self._datasette = Datasette([str(file) for file in files], settings=settings, **told)
        runner.run(self._datasette.invoke_startup())

    def get(self, path, actor=None):
        cookies = {"ds_actor": self._datasette.sign({"a": actor}, "actor")} if actor else {}
        return self._runner.run(self._datasette.client.get(path, cookies=cookies))


@pytest.fixture
def show():
    """Opens files in Datasette, as ``datasette FILE`` does."""
    with asyncio.Runner() as runner:
        yield partial(Shown, runner)


@pytest.fixture
def file(agent, db):
    """With one trace."""
    agent("fix the test")
    return db


@pytest.fixture
def trace_id(file):
    with closing(sqlite3.connect(file)) as connection:
        ((id,),) = connection.execute("SELECT id FROM traces").fetchall()
    return id


@pytest.fixture
def short(trace_id):
    return trace_id.removeprefix("kp:trace:")


@pytest.fixture
def other(tmp_path):
    """A file of another program, which has ids like ours."""
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE things (id TEXT PRIMARY KEY)")
        connection.execute("INSERT INTO things VALUES ('kp:trace:1')")
    return path


def copied(db, path):
    with closing(sqlite3.connect(db)) as connection:
        connection.execute("VACUUM INTO ?", (str(path),))
    return path


def ways(html):
    return re.findall(r'href="([^"]*)"', html.replace("&amp;", "&"))


def own_ways(html):
    return [href for href in ways(html) if "/-/kp/" in href]


def test_the_overview_has_every_picture(show, file):
    page = show(file).get(OVERVIEW)

    assert page.status_code == 200
    for title in ("Scores", "Delivery", "Tools", "Nearest to the threshold"):
        assert f"<h2>{title}</h2>" in page.text
    assert 'class="kp-picture"' in page.text


def test_the_overview_leads_to_the_gate_the_tables_and_a_search(show, file):
    page = show(file).get(OVERVIEW)

    assert {f"{OVERVIEW}/what-if", RUNS, f"{OVERVIEW}/review", "/kp"} <= {*ways(page.text)}
    assert re.search(rf"""<form[^>]* action="{RUNS}".*name="q".*</form>""", page.text)


def test_each_link_of_our_pages_leads_to_a_page(show, agent, db, short):
    agent("fix another test")
    shown = show(db)
    pages = [
        OVERVIEW,
        f"{OVERVIEW}/what-if",
        f"{OVERVIEW}/traces/{short}",
        f"{RUNS}?q=fix",
        f"{OVERVIEW}/review",
    ]
    hrefs = {href for page in pages for href in ways(shown.get(page).text) if href[:2] != "ht"}

    answers = {href: shown.get(href).status_code for href in hrefs if "/theme/" not in href}

    assert len(answers) > 14
    assert {*answers.values()} == {200}


def test_the_gate_tells_what_each_threshold_would_let_through(show, file):
    page = show(file).get(f"{OVERVIEW}/what-if")

    assert page.status_code == 200
    assert "At each threshold" in page.text
    assert OVERVIEW in ways(page.text)


def test_a_trace_has_a_page(show, short, file):
    page = show(file).get(f"{OVERVIEW}/traces/{short}")

    assert page.status_code == 200
    assert "fix the test" in page.text
    assert f"kp-middleware show {short[:8]}" in page.text
    assert {OVERVIEW, "/kp/traces/1", f"{OVERVIEW}/traces/{short}.md"} <= {*ways(page.text)}


def test_a_trace_leads_to_those_before_and_after_it(show, db):
    for name in ("one", "two", "three"):
        put(db, run(name, step("thought"), id=name))
    shown = show(db)

    first, second = (shown.get(f"{OVERVIEW}/traces/{name}").text for name in ("one", "two"))

    assert {f"{OVERVIEW}/traces/one", f"{OVERVIEW}/traces/three"} <= {*own_ways(second)}
    assert "Earlier" not in first
    assert "Later" in first


@pytest.mark.parametrize("name", ["@last", "@best"])
def test_a_trace_can_be_named_as_in_commands(show, trace_id, file, name):
    assert trace_id in show(file).get(f"{OVERVIEW}/traces/{name}").text


def test_a_trace_that_is_not_there_is_not_found(show, file):
    page = show(file).get(f"{OVERVIEW}/traces/ffffffff")

    assert page.status_code == 404
    assert "ffffffff" in page.text


def test_a_trace_with_an_id_of_somebody_elses_making_has_a_page(show, db):
    put(db, run("strange", step("thought"), id="a/b ?#%.ü"), with_value(0.9))
    shown = show(db)

    hrefs = [href for href in own_ways(shown.get(OVERVIEW).text) if "/traces/" in href]

    assert hrefs
    assert "strange" in shown.get(hrefs[0]).text


def test_the_command_to_copy_does_nothing_but_show(show, db):
    put(db, run("evil", step("thought"), id=";reboot"))

    assert "kp-middleware show &#39;;reboot&#39;" in show(db).get(f"{OVERVIEW}/traces/@last").text


def test_the_menu_of_every_page_leads_to_the_overview(show, file):
    shown = show(file)

    assert all(OVERVIEW in ways(shown.get(page).text) for page in ("/", "/kp", "/kp/traces"))


@pytest.mark.parametrize("table", ["traces", "history"])
def test_ids_in_tables_are_short_and_lead_to_their_pages(show, trace_id, short, file, table):
    page = show(file).get(f"/kp/{table}")

    assert f'<a href="{OVERVIEW}/traces/{short}" title="{trace_id}">{short[:8]}</a>' in page.text


def test_ids_in_json_stay_whole(show, trace_id, file):
    assert trace_id in show(file).get("/kp/traces.json?_shape=array").text


@pytest.mark.parametrize(
    "rest",
    [
        *("", "/what-if", "/traces/@last", "/runs?q=fix", "/traces/none", "/review"),
        *("/compare?left=@last&right=@best", "/conversations/x"),
    ],
)
def test_no_page_of_ours_has_or_may_run_a_script(show, file, rest):
    page = show(file).get(f"{OVERVIEW}{rest}")

    policy = page.headers["content-security-policy"]
    assert "default-src 'none'; script-src 'none'" in policy
    assert not re.search(r"<script|javascript:|<[^>]*\son\w+=", page.text)
    assert page.text.count('lang="en"') == page.text.count("<main") == 1


def test_every_page_of_ours_says_which_file_it_is_of(show, file, tmp_path):
    shown = show(file, copied(file, tmp_path / "second.db"))

    titles = [
        re.search("<title>(.*)</title>", shown.get(page).text).group(1)
        for page in (OVERVIEW, "/-/kp/second", "/-/kp/second/what-if")
    ]

    assert titles == ["Overview · kp.db", "Overview · second.db", "The gate · second.db"]
    assert ">second.db</a>" in shown.get("/-/kp/second/traces/@last").text


def test_tables_and_views_lead_back_to_the_overview(show, file):
    shown = show(file)

    for page in ("/kp", "/kp/traces", "/kp/history"):
        assert OVERVIEW in ways(shown.get(page).text)


def test_a_page_that_is_not_there_costs_no_traceback(show, file, capsys):
    shown = show(file)

    answers = [
        shown.get(path) for path in ("/-/kp/none", f"{OVERVIEW}/traces/x", "/kp/none", "/x/y")
    ]

    assert {answer.status_code for answer in answers} == {404}
    assert capsys.readouterr() == ("", "")


def test_a_file_of_another_program_gets_nothing_of_ours(show, other):
    shown = show(other)

    assert "kp:trace:1" in shown.get("/other/things").text
    assert not own_ways(shown.get("/").text + shown.get("/other/things").text)
    assert shown.get("/-/kp/other").status_code == 404


def test_nothing_of_ours_breaks_where_there_is_no_file(show):
    shown = show()

    assert shown.get("/").status_code == 200
    assert not own_ways(shown.get("/").text)
    assert shown.get("/-/kp/_memory").status_code == 404


def test_beside_another_file_ours_alone_has_pages(show, file, other):
    shown = show(other, file)

    assert own_ways(shown.get("/").text) == [OVERVIEW]
    assert not [href for href in own_ways(shown.get("/other/things").text) if "traces" in href]


def test_two_files_of_ours_have_an_overview_each(show, file, tmp_path):
    second = tmp_path / "second.db"
    put(second, run("another", step("thought")))

    page = show(file, second).get("/")

    assert own_ways(page.text) == [OVERVIEW, "/-/kp/second"]
    assert "Overview of kp" in page.text
    assert "another" in show(file, second).get("/-/kp/second/traces/@last").text


def test_a_name_that_needs_encoding_is_encoded(show, file, tmp_path):
    shown = show(copied(file, tmp_path / "my traces.2026 ü.db"))

    (overview,) = own_ways(shown.get("/").text)
    answers = [shown.get(href) for href in {*ways(shown.get(overview).text)} if href[:2] == "/m"]

    assert shown.get(overview).status_code == 200
    assert {answer.status_code for answer in answers} == {200}


def test_every_link_keeps_to_the_base_that_a_proxy_needs(show, short, file):
    shown = show(file, base_url="/x/")

    for page in (OVERVIEW, f"{OVERVIEW}/traces/{short}", "/kp/traces"):
        hrefs = ways(shown.get(page).text)
        assert [href for href in hrefs if href.startswith("/x/-/kp/kp")]
        assert not [href for href in hrefs if href[0] == "/" and not href.startswith("/x/")]


@pytest.mark.parametrize(
    "allow",
    [
        {"allow": ANNA},
        {"allow_sql": ANNA},
        {"databases": {"kp": {"allow": ANNA}}},
        {"databases": {"kp": {"allow_sql": ANNA}}},
    ],
    ids=["see anything", "use SQL", "see this file", "use SQL on this file"],
)
def test_who_may_not_read_the_file_sees_no_page_of_it(show, short, file, allow):
    shown = show(file, allow=allow)

    for page in (OVERVIEW, f"{OVERVIEW}/what-if", f"{OVERVIEW}/traces/{short}"):
        assert shown.get(page).status_code == 403
        assert shown.get(page, actor=ANNA).status_code == 200
    assert not own_ways(shown.get("/").text)
    assert own_ways(shown.get("/", actor=ANNA).text) == [OVERVIEW]


def test_a_file_that_is_no_database_is_none_of_ours(file, tmp_path):
    broken = tmp_path / "broken.db"
    broken.write_bytes(b"SQLite format 3\0" + b"nothing" * 1000)

    assert kp_databases(Datasette([str(broken), str(file)])) == {"kp": file}


def test_a_file_of_a_newer_version_is_left_to_datasette(show, file):
    newer = copied(file, file.with_name("newer.db"))
    with closing(sqlite3.connect(newer)) as connection:
        connection.execute("PRAGMA user_version = 99")
    shown = show(newer)

    assert shown.get("/newer/traces").status_code == 200
    assert not own_ways(shown.get("/newer/traces").text)


def test_a_file_with_nothing_in_it_says_so(show, db):
    connect(db).close()
    shown = show(db)

    assert "Nothing recorded yet" in shown.get(OVERVIEW).text
    assert "No runs recorded yet." in shown.get(RUNS).text
    assert shown.get(f"{OVERVIEW}/what-if").status_code == 200
    assert shown.get(f"{OVERVIEW}/traces/@last").status_code == 404


def test_what_is_recorded_meanwhile_is_there_at_the_next_look(show, agent, db):
    agent("the first")
    shown = show(db)
    shown.get(OVERVIEW)

    with closing(connect(db)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        during = shown.get(f"{OVERVIEW}/traces/@last")
        writer.rollback()
    agent("the second")

    assert "the first" in during.text
    assert "the second" in shown.get(f"{OVERVIEW}/traces/@last").text


def test_another_file_in_its_place_is_seen_as_what_it_is(show, file, other, tmp_path):
    place = copied(file, tmp_path / "place.db")
    shown = show(place)
    before = shown.get("/-/kp/place").status_code
    other.replace(place)

    assert (before, shown.get("/-/kp/place").status_code) == (200, 404)


def test_what_a_trace_says_is_text_and_not_markup(show, db):
    evil = "<script>alert(1)</script>\x1b[31m\u202e"
    put(db, run(evil, step("thought", tool=evil, content=evil), domain=evil), with_value(0.9))
    shown = show(db)

    pages = [shown.get(page).text for page in (OVERVIEW, f"{OVERVIEW}/traces/@last")]

    assert all("<script>alert" not in page for page in pages)
    assert all("&lt;script&gt;alert" in page for page in pages)
    assert all("\u202e" not in page for page in pages)


def test_a_file_of_an_older_version_is_told_with_the_remedy(show, file):
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA user_version = 6")

    page = show(file).get(OVERVIEW)

    assert page.status_code == 500
    assert "is of an older kp-middleware" in page.text
    assert f"kp-middleware migrate --db {file}" in page.text


def test_an_older_file_is_shown_as_soon_as_it_is_brought_up_to_date(show, file):
    with closing(connect(file)) as writer:  # it keeps what is written in the WAL
        writer.execute("PRAGMA user_version = 6")
        writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        shown = show(file)
        before = shown.get(OVERVIEW)
        writer.execute(f"PRAGMA user_version = {SCHEMA}")

        after, home = shown.get(OVERVIEW), shown.get("/")

    assert (before.status_code, after.status_code) == (500, 200)
    assert OVERVIEW in ways(home.text)


def test_who_may_not_see_an_older_file_learns_nothing_of_it(show, file):
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA user_version = 6")

    page = show(file, allow={"databases": {"kp": {"allow": ANNA}}}).get(OVERVIEW)

    assert page.status_code == 403
    assert "migrate" not in page.text
