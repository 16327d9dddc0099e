"""Telling how a run really went, by hand."""

import json
from contextlib import closing

import pytest
from terminal import typed

from kp_middleware import KnowledgePulse
from kp_middleware.database import connect
from kp_middleware.storage import History
from kp_middleware.web.pages import FullRun, trace_html
from kp_middleware.web.trace_map import SimilarRuns


class NoLinks:
    """Links that lead nowhere."""

    def __getattr__(self, _):
        return lambda *_: None


@pytest.fixture
def recorded(agent, monkeypatch):
    """A run that cleared, while there was no key; now there is one."""
    agent("one")
    monkeypatch.setenv("KP_API_KEY", "kp_x")
    monkeypatch.setenv("KP_REGISTRY_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("KP_THRESHOLD", "0.5")


@pytest.mark.usefixtures("recorded")
def test_it_says_what_was_and_what_is(type_command, as_json):
    before = as_json("show", "@last")

    done = type_command("feedback", "@last", "--failure")

    after = as_json("show", "@last")
    assert done.stdout.splitlines() == [
        after["id"],
        "success     not known → failed",
        "confidence  0.900",
        f"score       {before['score']:.3f} → {after['score']:.3f}",
        "decision    forward → withhold",
        f"→ kept here: score {after['score']:.3f} is below 0.5",
    ]
    assert (after["success"], len(after["feedback"])) == (0, 1)


@pytest.mark.usefixtures("recorded")
def test_what_clears_now_waits_for_the_program_that_runs_next(type_command):
    type_command("feedback", "@last", "--failure")

    done = type_command("feedback", "@last", "--success", "--confidence", "1", "--json")
    type_command("feedback", "@last", "--failure")
    again = type_command("feedback", "@last", "--success")

    told = json.loads(done.stdout)
    assert (told["before"]["decision"], told["before"]["outbox"]) == ("withhold", None)
    assert (told["after"]["decision"], told["after"]["outbox"]) == ("forward", "pending")
    assert (told["changed"], told["after"]["confidence"]) == (True, 1.0)
    assert told["delivery_status"] == "waits to be sent to http://127.0.0.1:9"
    assert "→ waits to be sent to http://127.0.0.1:9" in again.stdout
    assert "the next program that records sends it" in again.stderr


def test_a_queued_run_is_judged_by_the_threshold_of_the_program(db, type_command, as_json):
    there = {"api_key": "kp_x", "registry_url": "http://127.0.0.1:9"}
    with KnowledgePulse(db=db, embedder=None, sync=True, threshold=0.2, **there) as kp:
        kp.capture(kp.tool(str.upper))("one")

    done = type_command("feedback", "@last", "--success")

    assert "→ waits to be sent" in done.stdout
    assert "KP_THRESHOLD" not in done.stderr
    assert as_json("show", "@last")["threshold"] == 0.2


@pytest.mark.parametrize(("threshold", "told"), [(1, False), (0.6, True)])
def test_rescore_never_advises_the_threshold_that_replaced_an_invalid_one(
    db, type_command, monkeypatch, threshold, told
):
    monkeypatch.setenv("KP_EMBEDDER", "none")
    with KnowledgePulse(db=db, embedder=None, sync=True, threshold=threshold) as kp:
        kp.capture(kp.tool(str.upper))("one")

    done = type_command("rescore", "--dry-run")

    assert f"the last run used threshold {threshold}" in done.stderr
    assert ("set KP_THRESHOLD to match" in done.stderr) is told


def test_the_same_twice_changes_nothing_and_says_so(agent, type_command, as_json):
    agent("one")
    type_command("feedback", "@last", "--failure")
    before = as_json("show", "@last")

    done = type_command("feedback", "@last", "--failure")

    assert "nothing changed" in done.stderr
    assert as_json("show", "@last") == before


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["@last"], 2, "--success or --failure"),
        (["@last", "--confidence", "1.5"], 2, "1.5"),
        (["ffff", "--success"], 1, "no run matches ffff"),
    ],
    ids=["nothing", "too sure", "nobody"],
)
def test_what_was_typed_wrongly_is_said(agent, type_command, words, code, said):
    agent("one")

    done = type_command("feedback", *words)

    assert (done.exit_code, done.stdout) == (code, "")
    assert said in done.stderr


@pytest.fixture
def learned(agent, type_command):
    """A run of which two things were learned."""
    agent("one")
    type_command("feedback", "@last", "--failure")
    type_command("feedback", "@last", "--confidence", "0.25")


@pytest.mark.usefixtures("learned")
def test_commands_tell_when_and_what_was_before(type_command):
    for option in ("--md", "--why"):
        told = " ".join(type_command("show", "@last", option).stdout.split())
        assert "UTC: failed (before: not known to have failed, confidence 0.900)" in told
        assert "UTC: confidence 0.250 (before: failed, confidence 0.900)" in told
    assert "the run failed: 0.3 × confidence 0.250 (from feedback)" in told


@pytest.mark.usefixtures("learned")
def test_a_terminal_and_the_page_tell_it_too(db):
    with closing(connect(db, read_only=True)) as connection:
        trace = History(connection).run(1)

    lines = typed("--db", str(db), "show", trace.id)
    page = str(trace_html(FullRun(trace, SimilarRuns()), NoLinks()))

    said = "UTC: failed (before: not known to have failed, confidence 0.900)"
    assert f"  feedback {trace.feedback[0].given_at[:10]}" in lines
    assert (said in lines, said in page) == (True, True)
