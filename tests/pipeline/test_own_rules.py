"""A user's own rules are followed before the file and the network; in doubt nothing leaves."""

import sys

import pytest

from kp_middleware import current_trace

TOLD = "Bluebird: anna@example.org asks bob@example.org, or anna@example.org; password=hunter2"


@pytest.fixture
def run(pulse, registry):
    """Runs an agent that is told this, under these settings; its pipeline is done with it."""

    def once(told=TOLD, **settings):
        kp = pulse(registry_url=registry.url, api_key=registry.api_key, threshold=0.1, **settings)

        @kp.capture
        def ask():
            current_trace().thought(told)
            current_trace().outcome(confidence=0.9)

        ask()
        kp.flush()

    return once


def said(trace):
    return trace["steps"][0]["content"]


def sent(registry):
    (document,) = registry.documents.values()
    return document.steps[0].content


def test_what_is_denied_reaches_neither_the_file_nor_the_registry(run, stored, registry):
    run(redact_deny=["bluebird"])

    assert said(stored()).startswith("[REDACTED:denied]: anna@example.org")
    assert sent(registry).startswith("[REDACTED:denied]: [REDACTED:email]")
    assert stored()["outbox"]["redactions"] == {"email": 3, "denied": 1, "password": 1}


def test_what_is_allowed_is_sent(run, registry):
    run(redact_allow=["anna@example.org"])

    assert "Bluebird: anna@example.org asks [REDACTED:email]" in sent(registry)


def test_the_story_stays_readable_where_values_are_numbered(run, registry):
    run(redact_numbered=True)

    assert sent(registry) == (
        "Bluebird: [REDACTED:email#1] asks [REDACTED:email#2], or [REDACTED:email#1];"
        " password=[REDACTED:password]"
    )


def test_where_an_engine_does_not_work_the_run_is_kept_and_nothing_is_sent(
    run, stored, registry, caplog
):
    run(redact_engines=["gitleaks:/none.toml"])

    trace = stored()
    assert said(trace).endswith("password=[REDACTED:password]")
    assert (trace["state"], trace["outbox"]["state"]) == ("scored", "blocked")
    assert trace["outbox"]["reason"].startswith("engine_missing at gitleaks:/none.toml")
    assert registry.documents == {}
    assert "nothing will be sent: engine_missing" in caplog.text


def test_a_package_that_is_not_installed_is_named_where_the_trace_is_shown(
    run, stored, monkeypatch
):
    monkeypatch.setitem(sys.modules, "presidio_analyzer", None)

    run(redact_engines=["presidio:absent"], redact_deny=["bluebird"])

    assert 'pip install "kp-middleware[names]"' in stored()["outbox"]["reason"]
    assert said(stored()).startswith("[REDACTED:denied]: ")


def test_what_an_engine_finds_is_not_sent(run, stored, registry):
    pytest.importorskip("phonenumbers", reason="the extra phones is not installed")

    run("ask 9123 4567", redact_phone_regions=["SG"])

    assert (said(stored()), sent(registry)) == ("ask 9123 4567", "ask [REDACTED:phone]")
