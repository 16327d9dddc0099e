"""Our pages in Datasette, as ``datasette kp.db`` shows them; also run with Datasette 1.0a."""

import re
import sqlite3
from contextlib import closing

import pytest
from datasette.app import Datasette
from in_datasette import OVERVIEW, RUNS, links, our_links
from sample_runs import put, run, step, with_value

from kp_middleware.database import SCHEMA, connect
from kp_middleware.web.plugin import kp_databases

ANNA = {"id": "anna"}
NAME = "1339c01f-0840-467e-a0ec-6db4d9ab5c15"
"""Of the trace in the file: its id without the prefix."""


@pytest.fixture
def file(db):
    """With one trace."""
    put(db, run("fix the test", step("tool_call", tool="look"), id=NAME), with_value(0.8))
    return db


@pytest.fixture
def other(tmp_path):
    """A file of another program, which has ids like ours."""
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE things (id TEXT PRIMARY KEY)")
        connection.execute("INSERT INTO things VALUES ('kp:trace:1')")
    return path


def copied(db, path, version=SCHEMA):
    """A copy of the file, marked as of this version."""
    with closing(sqlite3.connect(db)) as connection:
        connection.execute("VACUUM INTO ?", (str(path),))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {version}")
    return path


def test_the_overview_has_pictures_and_leads_to_the_gate_the_tables_and_a_search(show, file):
    page = show(file).get(OVERVIEW)

    assert page.status_code == 200
    for title in ("Scores", "Delivery", "Tools", "Nearest to the threshold"):
        assert f"<h2>{title}</h2>" in page.text
    assert 'class="kp-picture"' in page.text
    assert {f"{OVERVIEW}/what-if", RUNS, f"{OVERVIEW}/review", "/kp"} <= {*links(page)}
    assert re.search(rf"""<form[^>]* action="{RUNS}".*name="q".*</form>""", page.text)


def test_each_link_of_our_pages_leads_to_a_page(show, file):
    put(file, run("fix another test", step("tool_call", tool="look")), with_value(0.7))
    shown = show(file)
    ends = ["", "/what-if", f"/traces/{NAME}", "/runs?q=fix", "/review"]
    pages = [shown.get(f"{OVERVIEW}{end}") for end in ends]
    hrefs = {href for page in pages for href in links(page) if href[:2] != "ht"}

    answers = {href: shown.get(href).status_code for href in hrefs if "/theme/" not in href}

    assert len(answers) > 14
    assert {*answers.values()} == {200}
    assert "At each threshold" in pages[1].text
    assert OVERVIEW in links(pages[1])


def test_a_trace_has_a_page_under_each_of_its_names(show, file):
    shown = show(file)

    page = shown.get(f"{OVERVIEW}/traces/{NAME}")

    assert page.status_code == 200
    assert "fix the test" in page.text
    assert {OVERVIEW, f"{OVERVIEW}/traces/{NAME}.md"} <= {*links(page)}
    assert NAME in shown.get(f"{OVERVIEW}/traces/@last").text
    assert NAME in shown.get(f"{OVERVIEW}/traces/@best").text


def test_a_trace_leads_to_those_before_and_after_it(show, db):
    for name in ("one", "two", "three"):
        put(db, run(name, step("thought"), id=name))
    shown = show(db)

    first, second = (shown.get(f"{OVERVIEW}/traces/{name}") for name in ("one", "two"))

    assert {f"{OVERVIEW}/traces/one", f"{OVERVIEW}/traces/three"} <= {*our_links(second)}
    assert "Earlier" not in first.text
    assert "Later" in first.text


def test_an_id_of_somebody_else_s_making_has_a_page(show, db):
    put(db, run("strange", step("thought"), id="a/b ?#%.ü"), with_value(0.9))
    shown = show(db)

    hrefs = [href for href in our_links(shown.get(OVERVIEW)) if "/traces/" in href]

    assert hrefs
    assert "strange" in shown.get(hrefs[0]).text


def test_the_menu_of_every_page_leads_to_the_overview(show, file):
    shown = show(file)

    for page in ("/", "/kp", "/kp/traces", "/kp/history"):
        assert OVERVIEW in links(shown.get(page))


def test_ids_in_tables_are_short_and_lead_to_their_pages_and_in_json_they_are_whole(show, file):
    shown = show(file)

    for table in ("traces", "history"):
        link = f'<a href="{OVERVIEW}/traces/{NAME}" title="kp:trace:{NAME}">{NAME[:8]}</a>'
        assert link in shown.get(f"/kp/{table}").text
    assert f"kp:trace:{NAME}" in shown.get("/kp/traces.json?_shape=array").text


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


def test_a_page_that_is_not_there_costs_no_traceback(show, file, capsys):
    shown = show(file)
    paths = ("/-/kp/none", f"{OVERVIEW}/traces/ffffffff", "/kp/none", "/x/y")

    answers = [shown.get(path) for path in paths]

    assert {answer.status_code for answer in answers} == {404}
    assert "ffffffff" in answers[1].text
    assert capsys.readouterr() == ("", "")


def test_beside_another_program_s_file_ours_alone_has_pages(show, file, other):
    shown = show(other, file)

    assert our_links(shown.get("/")) == [OVERVIEW]
    assert "kp:trace:1" in shown.get("/other/things").text
    assert not [href for href in our_links(shown.get("/other/things")) if "traces" in href]
    assert shown.get("/-/kp/other").status_code == 404


def test_nothing_of_ours_breaks_where_there_is_no_file(show):
    shown = show()

    assert shown.get("/").status_code == 200
    assert not our_links(shown.get("/"))
    assert shown.get("/-/kp/_memory").status_code == 404


def test_two_files_of_ours_have_an_overview_each_that_says_which_file_it_is_of(
    show, file, tmp_path
):
    put(tmp_path / "second.db", run("another", step("thought")))
    shown = show(file, tmp_path / "second.db")

    titles = [
        re.search("<title>(.*)</title>", shown.get(page).text).group(1)
        for page in (OVERVIEW, "/-/kp/second", "/-/kp/second/what-if")
    ]

    assert our_links(shown.get("/")) == [OVERVIEW, "/-/kp/second"]
    assert "Overview of kp" in shown.get("/").text
    assert titles == ["Overview · kp.db", "Overview · second.db", "The gate · second.db"]
    trace = shown.get("/-/kp/second/traces/@last").text
    assert "another" in trace
    assert ">second.db</a>" in trace


def test_a_name_that_needs_encoding_is_encoded(show, file, tmp_path):
    shown = show(copied(file, tmp_path / "my traces.2026 ü.db"))

    (overview,) = our_links(shown.get("/"))
    answers = [shown.get(href) for href in {*links(shown.get(overview))} if href[:2] == "/m"]

    assert shown.get(overview).status_code == 200
    assert {answer.status_code for answer in answers} == {200}


def test_every_link_keeps_to_the_base_that_a_proxy_needs(show, file):
    shown = show(file, base_url="/x/")

    for page in (OVERVIEW, f"{OVERVIEW}/traces/{NAME}", "/kp/traces"):
        hrefs = links(shown.get(f"/x{page}"))
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
def test_who_may_not_read_the_file_sees_no_page_of_it_and_learns_nothing_of_its_version(
    show, file, allow
):
    shown = show(file, allow=allow)

    for page in (OVERVIEW, f"{OVERVIEW}/what-if", f"{OVERVIEW}/traces/{NAME}"):
        assert shown.get(page).status_code == 403
        assert shown.get(page, actor=ANNA).status_code == 200
    assert not our_links(shown.get("/"))
    assert our_links(shown.get("/", actor=ANNA)) == [OVERVIEW]
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA user_version = 6")
    page = show(file, allow=allow).get(OVERVIEW)
    assert page.status_code == 403
    assert "migrate" not in page.text


def test_a_file_that_is_broken_or_of_a_newer_version_is_none_of_ours(show, file, tmp_path):
    broken, newer = tmp_path / "broken.db", copied(file, tmp_path / "newer.db", version=99)
    broken.write_bytes(b"SQLite format 3\0" + b"nothing" * 1000)

    page = show(newer).get("/newer/traces")

    assert kp_databases(Datasette([str(broken), str(newer), str(file)])) == {"kp": file}
    assert page.status_code == 200
    assert not our_links(page)


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
    place, next_one = copied(file, tmp_path / "place.db"), tmp_path / "next.db"
    put(next_one, run("the new question", step("thought")))
    shown = show(place)
    before = shown.get("/-/kp/place/traces/@last").text

    copied(next_one, tmp_path / "copy.db").replace(place)
    after = shown.get("/-/kp/place/traces/@last").text
    other.replace(place)

    assert "fix the test" in before
    assert "the new question" in after
    assert "taken the place" not in after
    assert shown.get("/-/kp/place").status_code == 404


def test_what_a_trace_says_is_text_and_not_markup(show, db):
    evil = "<script>alert(1)</script>\x1b[31m\u202e"
    put(db, run(evil, step("thought", tool=evil, content=evil), domain=evil), with_value(0.9))
    shown = show(db)

    pages = [shown.get(page).text for page in (OVERVIEW, f"{OVERVIEW}/traces/@last")]

    assert all("<script>alert" not in page for page in pages)
    assert all("&lt;script&gt;alert" in page for page in pages)
    assert all("\u202e" not in page for page in pages)


def test_an_older_file_is_reported_with_the_remedy_and_shown_once_it_is_up_to_date(show, file):
    with closing(connect(file)) as writer:  # it keeps what is written in the WAL
        writer.execute("PRAGMA user_version = 6")
        writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        shown = show(file)
        before = shown.get(OVERVIEW)
        writer.execute(f"PRAGMA user_version = {SCHEMA}")

        after, home = shown.get(OVERVIEW), shown.get("/")

    assert (before.status_code, after.status_code) == (500, 200)
    assert "is from an older kp-middleware" in before.text
    assert f"kp-middleware migrate --db {file}" in before.text
    assert OVERVIEW in links(home)
