"""A secret is destroyed before the file; who somebody is, before anything leaves."""

import base64
import sys

import pytest

from kp_middleware import current_trace

TOLD = {
    "a secret": "password=" + "Quiet-417-xyzw",
    "a secret in base64": base64.b64encode(b"TOKEN=" + b"Quiet-418-abcd\n").decode(),
    "a card": "card 4111 1111 1111 1111",
    "a national id": "SSN 123-45-6789",
    "an account": "DE89 3704 0044 0532 0130 00",
    "an address": "anna@example.org",
    "a row": "17 4021 9 2210 33 8 120 4",
}
ALL = (*TOLD.values(),)
BEFORE_THE_FILE = {"a secret", "a secret in base64", "a card"}
BEFORE_IT_LEAVES = BEFORE_THE_FILE | {"a national id", "an account", "an address"}
NAMES = "Bluebird: anna@example.org asks bob@example.org, or anna@example.org; password=hunter2"


@pytest.fixture
def run(pulse, sending):
    """Runs an agent that is told this, under these settings; it has left when this is done."""

    def once(*told, **settings):
        kp = pulse(**{**sending, "threshold": 0.1}, **settings)

        @kp.capture
        def ask():
            for text in told:
                current_trace().observation(text)
            current_trace().outcome(confidence=0.9)

        ask()
        kp.flush()

    return once


@pytest.fixture
def kept_text(stored):
    """Return the stored text of the agent's question."""
    return lambda: stored()["steps"][0]["content"]


@pytest.fixture
def sent_text(registry):
    """Return the text that the registry received."""

    def read():
        (document,) = registry.documents.values()
        return document.steps[0].content

    return read


def left_in(content):
    """Return the texts that are whole in these bytes."""
    return {kind for kind, text in TOLD.items() if text.encode() in content}


@pytest.mark.parametrize(
    ("level", "gone"),
    [
        ("aggregated", BEFORE_IT_LEAVES),
        ("federated", BEFORE_IT_LEAVES),
        ("private", BEFORE_THE_FILE),
    ],
)
def test_the_file_holds_all_but_the_secrets_and_what_is_posted_has_lost_what_its_level_says(
    run, registry, written, level, gone
):
    run(*ALL, privacy_level=level)

    (request,) = registry.requests
    assert left_in(written()) == TOLD.keys() - BEFORE_THE_FILE
    assert left_in(request.body) == TOLD.keys() - gone


def test_what_is_denied_reaches_neither_the_file_nor_the_registry(
    run, stored, kept_text, sent_text
):
    run(NAMES, redact_deny=["bluebird"])

    assert kept_text().startswith("[REDACTED:denied]: anna@example.org")
    assert sent_text().startswith("[REDACTED:denied]: [REDACTED:email]")
    assert stored()["outbox"]["redactions"] == {"email": 3, "denied": 1, "password": 1}


def test_what_is_allowed_is_sent(run, sent_text):
    run(NAMES, redact_allow=["anna@example.org"])

    assert "Bluebird: anna@example.org asks [REDACTED:email]" in sent_text()


def test_the_story_stays_readable_where_values_are_numbered(run, sent_text):
    run(NAMES, redact_numbered=True)

    assert sent_text() == (
        "Bluebird: [REDACTED:email#1] asks [REDACTED:email#2], or [REDACTED:email#1];"
        " password=[REDACTED:password]"
    )


def test_where_an_engine_does_not_work_the_run_is_kept_and_nothing_is_sent(
    run, kept_text, stored, registry, caplog
):
    run(NAMES, redact_engines=["gitleaks:/none.toml"])

    trace = stored()
    assert kept_text().endswith("password=[REDACTED:password]")
    assert (trace["state"], trace["outbox"]["state"]) == ("scored", "blocked")
    assert trace["outbox"]["reason"].startswith("engine_missing at gitleaks:/none.toml")
    assert registry.documents == {}
    assert "nothing will be sent: engine_missing" in caplog.text


def test_a_package_that_is_not_installed_is_named_where_the_trace_is_shown(
    run, kept_text, stored, monkeypatch
):
    monkeypatch.setitem(sys.modules, "presidio_analyzer", None)

    run(NAMES, redact_engines=["presidio:absent"], redact_deny=["bluebird"])

    assert 'pip install "kp-middleware[names]"' in stored()["outbox"]["reason"]
    assert kept_text().startswith("[REDACTED:denied]: ")


@pytest.mark.parametrize(
    ("told", "region", "left"),
    [
        ("ask 9123 4567", "SG", "ask [REDACTED:phone]"),
        ("look at 756.9217.0769.85 today", "CH", "look at [REDACTED:ch_ahv] today"),
    ],
    ids=["a phone", "an id without a word"],
)
def test_in_a_region_that_is_named_its_numbers_are_not_sent(
    run, kept_text, sent_text, told, region, left
):
    pytest.importorskip("phonenumbers", reason="the extra phones is not installed")

    run(told, redact_phone_regions=[region])

    assert (kept_text(), sent_text()) == (told, left)
