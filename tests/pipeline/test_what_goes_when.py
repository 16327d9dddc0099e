"""A secret is destroyed before the file; who somebody is, before anything leaves."""

import base64

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


@pytest.fixture
def run(pulse, registry):
    """Runs an agent that is told all of it, under these settings; it has left when this is done."""

    def once(told=ALL, **settings):
        kp = pulse(registry_url=registry.url, api_key=registry.api_key, threshold=0.1, **settings)

        @kp.capture
        def ask():
            for text in told:
                current_trace().observation(text)
            current_trace().outcome(confidence=0.9)

        ask()
        kp.flush()

    return once


def left_in(content):
    """Which of the texts are in these bytes, whole."""
    return {kind for kind, text in TOLD.items() if text.encode() in content}


def test_the_file_holds_all_but_the_secrets(run, db):
    run()

    written = b"".join(path.read_bytes() for path in db.parent.iterdir() if path.is_file())
    assert left_in(written) == TOLD.keys() - BEFORE_THE_FILE


@pytest.mark.parametrize(
    ("level", "gone"),
    [
        ("aggregated", BEFORE_IT_LEAVES),
        ("federated", BEFORE_IT_LEAVES),
        ("private", BEFORE_THE_FILE),
    ],
)
def test_what_is_posted_has_lost_what_its_level_says(run, registry, level, gone):
    run(privacy_level=level)

    (request,) = registry.requests
    assert left_in(request.body) == TOLD.keys() - gone


def test_in_a_region_that_is_named_its_ids_go_without_a_word(run, registry):
    pytest.importorskip("phonenumbers", reason="the extra phones is not installed")

    run(["look at 756.9217.0769.85 today"], redact_phone_regions=["CH"])

    (request,) = registry.requests
    assert b"look at [REDACTED:ch_ahv] today" in request.body
