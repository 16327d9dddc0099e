import os
import re
import stat
import subprocess
import sys
from contextlib import closing
from typing import NamedTuple
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner

from kp_middleware import Decision, KnowledgePulse, ReasoningTrace, Step, Tool, current_trace
from kp_middleware.cli import main
from kp_middleware.database import connect
from kp_middleware.testing import LocalRegistry, StandInEmbedder


@pytest.fixture
def out(tmp_path):
    return tmp_path / "report.html"


@pytest.fixture
def write(type_command, out):
    """Writes the report; the page as text."""

    def write(*words):
        result = type_command("report", str(out), *words)
        assert result.exit_code == 0, result.stderr
        return out.read_text()

    return write


class Always(NamedTuple):
    """A gate of the user's own."""

    name: str

    def decide(self, score, history):  # noqa: ARG002
        return Decision("forward", "always", score.value)


def page(text):
    return ET.fromstring(text.removeprefix("<!DOCTYPE html>\n"))


def words(text):
    return " ".join("".join(page(text).find("body").itertext()).split())


def links(text):
    return [mark.get("href") for mark in page(text).iter() if mark.get("href")]


def test_the_report_is_one_file_that_fetches_nothing(agent, write):
    for number in range(5):
        agent(f"fix test {number}")

    text = write()

    tags = {mark.tag.rpartition("}")[2] for mark in page(text).iter()}
    assert not tags & {"script", "img", "link", "iframe", "object"}
    assert not re.search(r"url\(|@import|src=", text)
    assert all(href.startswith("#") for href in links(text))


def test_the_report_may_not_run_or_fetch_anything(agent, write):
    agent("fix the test")

    (policy,) = page(write()).findall("head/meta[@http-equiv]")

    assert policy.get("http-equiv") == "Content-Security-Policy"
    assert policy.get("content").startswith("default-src 'none'; style-src 'unsafe-inline'")


@pytest.mark.parametrize(("words", "is_told"), [((), False), (("--as-recorded",), True)])
def test_the_name_of_the_file_is_redacted_as_its_texts_are(tmp_path, out, words, is_told):
    named = tmp_path / "anna.smith@example.org.db"
    connect(named).close()

    CliRunner().invoke(main, ["--db", str(named), "report", str(out), *words])

    assert ("anna.smith" in out.read_text()) == is_told


def test_every_link_leads_to_something_in_the_page(agent, write):
    for number in range(30):
        agent(f"fix test {number}")

    text = write()

    places = {f"#{mark.get('id')}" for mark in page(text).iter() if mark.get("id")}
    assert len(links(text)) > 30
    assert set(links(text)) <= places


def test_the_best_are_told_in_full(agent, write):
    agent("fix the test")

    (told,) = page(write()).findall(".//section[@class='kp-trace']")

    assert told.find(".//h1/bdi").text == "fix the test"
    assert told.find(".//li/header/b").text == "Agent"


def test_what_must_not_be_shared_is_not_in_it(kp, write):
    @kp.capture(domain="anna@example.org")
    def answer(question):
        current_trace().thought(f"I wrote to anna@example.org of {question}")
        return "ask bob@example.org"

    answer("mail anna@example.org")

    text = write()

    assert "example.org" not in text
    assert "[REDACTED:email]" in text
    assert "redacted at level aggregated" in words(text)


@pytest.mark.parametrize("place", ["gate", "tool", "domain"])
def test_no_picture_names_what_must_not_be_shared(db, write, place):
    names = {"gate": "ours", "tool": "grep", "domain": "law"} | {place: "anna@example.org"}
    with KnowledgePulse(
        db=db, embedder=StandInEmbedder(), gate=Always(names["gate"]), sync=True
    ) as kp:
        for visibility in ("private", "network"):
            trace = ReasoningTrace.of(
                "fix the test",
                [Step(step_id=0, type="tool_call", tool=Tool(name=names["tool"]))],
                domain=names["domain"],
            )
            metadata = trace.metadata.model_copy(update={"visibility": visibility})
            kp.submit(trace.model_copy(update={"metadata": metadata}))

    assert "anna@example.org" in write("--as-recorded", "--force")
    assert "example.org" not in write("--force")


def test_raw_leaves_the_texts_as_they_are_and_says_so(agent, write):
    agent("mail anna@example.org")

    text = write("--as-recorded")

    assert "mail anna@example.org" in text
    assert "Its texts are not redacted" in words(text)


def test_the_level_is_that_of_the_settings(agent, write, monkeypatch):
    agent("mail anna@example.org")
    monkeypatch.setenv("KP_PRIVACY_LEVEL", "private")

    assert "mail anna@example.org" in write()


def test_a_text_that_cannot_be_redacted_is_left_out_with_a_word(
    agent, type_command, out, monkeypatch
):
    agent("mail anna@example.org")
    monkeypatch.setenv("KP_REDACT_ENGINES", "gitleaks:/none.toml")

    result = type_command("report", str(out))

    assert result.exit_code == 0
    assert re.search("left out [0-9]+ texts that could not be redacted", result.stderr)
    assert "[left out: engine_" in out.read_text()
    assert "example.org" not in out.read_text()


def test_the_report_is_for_its_user_alone(agent, write, out):
    agent("one")

    write()

    assert stat.S_IMODE(out.stat().st_mode) == 0o600


def test_a_report_that_exists_is_replaced_only_by_force(agent, type_command, out, write):
    agent("one")
    out.write_text("mine")

    refused = type_command("report", str(out))

    assert (refused.exit_code, out.read_text()) == (2, "mine")
    assert "--force" in refused.stderr
    assert "What your agents did" in write("--force")


def test_since_leaves_out_what_is_older(agent, db, write):
    agent("an old one")
    agent("a new one")
    with closing(connect(db)) as connection:
        connection.execute(
            "UPDATE traces SET started_at = '2020-01-01T00:00:00.000Z' WHERE seq = 1"
        )

    text = write("--since", "7d")

    listed = page(text).findall(".//section[h2='Runs']//tbody/tr")
    assert ["".join(row[0].itertext()) for row in listed] == ["a new one"]
    assert "".join(page(text).find(".//dd").itertext()) == "1"


def test_what_was_sent_is_in_it(db, write):
    with (
        LocalRegistry() as registry,
        KnowledgePulse(
            db=db,
            embedder=StandInEmbedder(),
            threshold=0.1,
            registry_url=registry.url,
            api_key=registry.api_key,
        ) as kp,
    ):
        kp.capture(str.upper)("fix the test")
        kp.flush(timeout_s=20)

    text = write()

    assert '"objective": "' in "".join(page(text).find(".//pre").itertext())
    assert "Sent to http://" in words(text)


def test_open_shows_it_in_the_browser(agent, db, out, tmp_path):
    agent("one")
    shown, browser = tmp_path / "shown", tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\nprintf %s "$1" > "{shown}"\n')
    browser.chmod(0o700)

    subprocess.run(
        [sys.executable, "-m", "kp_middleware", "--db", db, "report", out, "--open"],
        env={**os.environ, "BROWSER": f"'{browser}' %s"},
        check=True,
    )

    assert shown.read_text() == out.as_uri()


def test_an_empty_file_gives_a_report_that_says_so(db, type_command, out):
    connect(db).close()

    result = type_command("report", str(out))

    assert result.exit_code == 0
    assert "No scored runs yet" in words(out.read_text())


def test_a_file_that_does_not_exist_leaves_no_report(type_command, out):
    result = type_command("report", str(out))

    assert result.exit_code == 1
    assert "does not exist" in result.stderr
    assert not out.exists()


def test_help_teaches_the_report(type_command):
    result = type_command("report", "--help")

    assert "kp-middleware report --since 7d --open" in result.stdout


def test_an_ordinary_domain_is_on_one_line_and_a_long_one_is_broken(kp, write):
    @kp.capture(domain="customer_service")
    def ordinary(question):
        return question

    @kp.capture(domain="x" * 60)
    def long(question):
        return question

    ordinary("one")
    long("two")

    cells = {
        "".join(cell.itertext()): cell.get("class")
        for cell in page(write("--as-recorded")).iter("td")
        if cell.find("bdi") is not None
    }
    assert cells["customer_service"] == "kp-narrow"
    assert cells["x" * 60] is None
