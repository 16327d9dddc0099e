import re
from typing import NamedTuple

import pytest
from page_reading import hrefs, parsed, text_of
from sample_runs import put, run, step, with_value

from kp_middleware import Decision, KnowledgePulse, ReasoningTrace, Step, Tool, current_trace
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


def test_the_report_is_one_file_that_fetches_and_runs_nothing(agent, write):
    for number in range(5):
        agent(f"fix test {number}")

    text = write()

    tags = {mark.tag.rpartition("}")[2] for mark in parsed(text).iter()}
    assert not tags & {"script", "img", "link", "iframe", "object"}
    assert not re.search(r"url\(|@import|src=", text)
    assert all(href.startswith("#") for href in hrefs(text))
    (policy,) = parsed(text).findall("head/meta[@http-equiv]")

    assert policy.get("http-equiv") == "Content-Security-Policy"
    assert policy.get("content").startswith("default-src 'none'; style-src 'unsafe-inline'")


@pytest.mark.parametrize(
    ("words", "is_told"), [([], False), (["--as-recorded"], True), (["--raw"], True)]
)
def test_the_name_of_the_file_is_redacted_as_its_texts_are(
    type_command, tmp_path, out, words, is_told
):
    named = tmp_path / "anna.smith@example.org.db"
    connect(named).close()

    type_command("--db", str(named), "report", str(out), *words)

    assert ("anna.smith" in out.read_text()) == is_told


def test_the_best_are_told_in_full_and_every_link_leads_to_something_in_the_page(agent, write):
    for number in range(30):
        agent(f"fix test {number}")

    text = write()

    best = parsed(text).find(".//section[@class='kp-trace']")
    places = {f"#{mark.get('id')}" for mark in parsed(text).iter() if mark.get("id")}
    assert best.find(".//h1/bdi").text.startswith("fix test")
    assert best.find(".//li/header/b").text == "Agent"
    assert len(hrefs(text)) > 30
    assert set(hrefs(text)) <= places


def test_what_must_not_be_shared_is_not_in_it(kp, write):
    @kp.capture(domain="anna@example.org")
    def answer(question):
        current_trace().thought(f"I wrote to anna@example.org of {question}")
        return "ask bob@example.org"

    answer("mail anna@example.org")

    text = write()

    assert "example.org" not in text
    assert "[REDACTED:email]" in text
    assert "redacted at level aggregated" in text_of(text)


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


def test_texts_as_they_are_are_said_to_be_or_a_setting(agent, write, monkeypatch):
    agent("mail anna@example.org")

    text = write("--as-recorded")
    monkeypatch.setenv("KP_PRIVACY_LEVEL", "private")

    assert "mail anna@example.org" in text
    assert "Its texts are not redacted" in text_of(text)
    assert "mail anna@example.org" in write("--force")


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


def test_since_leaves_out_what_is_older(agent, db, write):
    put(db, run("an old one", step("thought"), instant="2020-01-01T00:00:00Z"), with_value(0.9))
    agent("a new one")

    text = write("--since", "7d")

    listed = parsed(text).findall(".//section[h2='Runs']//tbody/tr")
    assert ["".join(row[0].itertext()) for row in listed] == ["a new one"]
    assert "".join(parsed(text).find(".//dd").itertext()) == "1"


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

    assert '"objective": "' in "".join(parsed(text).find(".//pre").itertext())
    assert "Sent to http://" in text_of(text)


def test_open_shows_it_in_the_browser(agent, write, out, monkeypatch):
    agent("one")
    shown = []
    monkeypatch.setattr("webbrowser.open", shown.append)

    write("--open")

    assert shown == [out.as_uri()]


def test_an_empty_file_gives_a_report_that_says_so(db, write):
    connect(db).close()

    assert "No scored runs yet" in text_of(write())


def test_an_ordinary_domain_is_on_one_line_and_a_long_one_is_broken(db, write):
    for domain in ("customer_service", "x" * 60):
        put(db, run("one", step("thought"), domain=domain), with_value(0.9))

    cells = {
        "".join(cell.itertext()): cell.get("class")
        for cell in parsed(write("--as-recorded")).iter("td")
        if cell.find("bdi") is not None
    }
    assert cells["customer_service"] == "kp-narrow"
    assert cells["x" * 60] is None
