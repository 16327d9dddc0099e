"""A user's own rules and exceptions, and numbers for values."""

import json

import made_up
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_redacting_structures import DOCUMENTS
from test_redacting_text import TEXTS

from kp_middleware.errors import RedactionError
from kp_middleware.privacy import REDACTOR, Policy, check_clean, redact_jsonable, redact_text

KEY = made_up.PREFIXED["github"]
OWN = Policy(
    allow=("anna@example.org",), deny=("Bluebird",), keys_deny=("salary",), keys_allow=("token",)
)


def cleaned(text, level="aggregated", **policy):
    return redact_text(text, level=level, policy=Policy(**policy)).text


@pytest.mark.parametrize("level", ["private", "federated", "aggregated"])
def test_a_denied_text_goes_at_every_level_whatever_its_case(level):
    text = "Bluebird and BLUEBIRDS, bluebird"

    assert cleaned(text, level, deny=("bluebird",)) == (
        "[REDACTED:denied] and [REDACTED:denied]S, [REDACTED:denied]"
    )


@pytest.mark.parametrize(
    ("denied", "text"),
    [
        ("Bluebird", "Bluebird"),
        ("0", "0"),
        ("naïve", "NAÏVE"),
        ("blue\u200bbird", "bluebird"),
        ("a b", "a\u200b b"),
        ("***", "***"),
    ],
)
def test_a_denied_text_goes_whatever_it_is_made_of(denied, text):
    assert cleaned(text, deny=(denied,)) == "[REDACTED:denied]"


def test_what_a_denied_pattern_finds_goes():
    assert cleaned("see ACME-12, acme-12", deny=(r"/ACME-\d+/",)) == (
        "see [REDACTED:denied], acme-12"
    )


def test_a_denied_pattern_takes_no_placeholder_apart():
    assert cleaned("mail a@b.example", deny=("/.+/",)) == "[REDACTED:denied]"
    assert cleaned("[REDACTED:email]", deny=("/.+/", "/x*/", "email")) == "[REDACTED:email]"


@pytest.mark.parametrize(
    "value",
    [{"n": 12}, {"n": 12345}, {"12": 1}, {"a": "12"}, {"a": '{"b": 12}'}, ["12"]],
    ids=["a small number", "a number", "a key", "a string", "JSON in a string", "an item"],
)
def test_a_denied_text_goes_wherever_it_is(value):
    redacted = redact_jsonable(value, level="private", policy=Policy(deny=("12",)))

    assert "12" not in json.dumps(redacted.value)
    assert redacted.counts == {"denied": 1}


def test_an_allowed_text_stays_where_it_is_the_whole_finding():
    text = "anna@example.org, bob@example.org, postgres://anna@example.org/db"

    assert cleaned(text, allow=("anna@example.org",)) == (
        "anna@example.org, [REDACTED:email], [REDACTED:connection_string]"
    )


def test_an_allowed_pattern_covers_the_whole_finding_or_nothing():
    text = "a@acme.example b@acme.example.org"

    assert cleaned(text, allow=(r"/\w+@acme\.example/",)) == "a@acme.example [REDACTED:email]"


def test_a_secret_stays_for_its_own_text_only_and_for_no_pattern():
    assert cleaned(KEY, allow=(KEY,)) == KEY
    assert cleaned(KEY, allow=(KEY[:-1],)) == "[REDACTED:api_key]"
    assert cleaned(KEY, allow=("/.*/",)) == "[REDACTED:api_key]"


def test_what_is_denied_goes_also_where_it_is_allowed():
    assert cleaned("a@b.example", allow=("a@b.example",), deny=("a@b.example",)) == (
        "[REDACTED:denied]"
    )


@pytest.mark.parametrize("key", ["salary", "Salary", "SALARY", "base-salary", "baseSalary"])
def test_values_of_denied_keys_go(key):
    policy = Policy(keys_deny=("salary", "base_salary"))

    redacted = redact_jsonable({key: [50_000, {"per": "year"}]}, level="private", policy=policy)

    assert redacted.value == {key: ["[REDACTED:denied]", {"per": "[REDACTED:denied]"}]}


def test_a_denied_counter_goes_too():
    policy = Policy(keys_deny=("token_count",))

    assert redact_jsonable({"token_count": 7}, level="private", policy=policy).value == {
        "token_count": "[REDACTED:denied]"
    }


def test_an_allowed_key_says_nothing_of_its_value():
    value = {"csrf_token": "abc", "token": "abc", "csrfToken": KEY}

    redacted = redact_jsonable(value, level="private", policy=Policy(keys_allow=("csrf_token",)))

    assert redacted.value == {
        "csrf_token": "abc",
        "token": "[REDACTED:password]",
        "csrfToken": "[REDACTED:api_key]",
    }


def test_an_allowed_key_below_a_secret_one_is_below_it_still():
    value = {"credentials": {"region": "eu"}}

    redacted = redact_jsonable(value, level="private", policy=Policy(keys_allow=("region",)))

    assert redacted.value == {"credentials": {"region": "[REDACTED:password]"}}


def test_the_gate_knows_the_policy():
    policy = Policy(allow=("anna@example.org",), deny=("bluebird",))
    check_clean(b'{"to": "anna@example.org"}', level="aggregated", policy=policy)

    with pytest.raises(RedactionError, match=r"^residual_secret at to \(denied, 8 chars\)$"):
        check_clean(b'{"to": "Bluebird"}', level="aggregated", policy=policy)


def test_a_user_s_rules_do_not_stop_the_words_of_the_format():
    policy = Policy(deny=("network", "thought"))

    body = b'{"metadata": {"visibility": "network"}, "steps": [{"type": "thought"}]}'

    assert check_clean(body, level="aggregated", policy=policy) is None


def test_equal_values_have_equal_numbers():
    value = ["a@b.example to c@d.example", {"A@b.example": "call +49 30 1234567"}]

    redacted = redact_jsonable(value, level="aggregated", policy=Policy(numbered=True))

    assert redacted.value == [
        "[REDACTED:email#1] to [REDACTED:email#2]",
        {"[REDACTED:email#1]": "call [REDACTED:phone#1]"},
    ]
    assert redacted.counts == {"email": 3, "phone": 1}


def test_each_document_has_its_own_numbers():
    assert cleaned("b@c.example", numbered=True) == "[REDACTED:email#1]"
    assert cleaned("d@e.example", numbered=True) == "[REDACTED:email#1]"


def test_numbers_that_are_there_already_are_not_given_again():
    assert cleaned("[REDACTED:email#4] a@b.example", numbered=True) == (
        "[REDACTED:email#4] [REDACTED:email#5]"
    )


def test_what_goes_before_the_file_is_written_is_not_numbered():
    text = f"{KEY} password=hunter2 4111 1111 1111 1111 Bluebird"

    assert cleaned(text, deny=("Bluebird",), numbered=True) == (
        "[REDACTED:api_key] password=[REDACTED:password] [REDACTED:credit_card] [REDACTED:denied]"
    )


def test_the_redactor_says_that_a_policy_was_applied():
    own, other = Policy(deny=("a",)).redactor, Policy(deny=("b",)).redactor

    assert Policy().redactor == REDACTOR
    assert own.startswith(f"{REDACTOR}+")
    assert own != other


@given(TEXTS)
def test_redacting_twice_under_a_policy_changes_nothing_more(text):
    policy = Policy(deny=("e", r"/\d+/"), allow=("/.*@.*/",), numbered=True)
    once = redact_text(text, level="aggregated", policy=policy).text

    assert redact_text(once, level="aggregated", policy=policy).text == once


@given(TEXTS)
def test_a_policy_that_adds_never_keeps_what_would_have_gone(text):
    policy = Policy(deny=("e", r"/\d+/"))

    added = redact_text(text, level="aggregated", policy=policy).text

    assert redact_text(added, level="aggregated").text == added


@given(DOCUMENTS, st.sampled_from(["private", "aggregated"]), st.sampled_from([True, False]))
def test_what_was_cleaned_under_a_policy_passes_its_gate(document, level, numbered):
    policy = Policy(OWN.allow, OWN.deny, OWN.keys_allow, OWN.keys_deny, numbered=numbered)

    redacted = redact_jsonable(document, level=level, policy=policy).value

    check_clean(json.dumps(redacted).encode(), level=level, policy=policy)
    assert made_up.shape(redacted) == made_up.shape(document)


@pytest.mark.parametrize(
    ("denied", "number"),
    [("52.520008", 52.520008), ("-5", -5), ("1e-07", 1e-07), ("0.0000001", 1e-07), ("7", -7.0)],
)
def test_a_denied_number_goes_however_it_is_written(denied, number):
    redacted = redact_jsonable({"n": number}, level="private", policy=Policy(deny=(denied,)))

    assert "[REDACTED:denied]" in str(redacted.value["n"])


@pytest.mark.parametrize("number", [52.520008, -5, 1e-07, 1e300, 12345.0, True])
def test_a_number_that_is_not_denied_stays_itself(number):
    redacted = redact_jsonable([number], level="private", policy=Policy(deny=("bluebird",)))

    assert redacted.value == [number]


def test_what_is_allowed_stays_in_a_text_and_below_a_name():
    policy = Policy(allow=("changeme1",), keys_deny=("pin",))
    value = {"text": "password=changeme1", "password": "changeme1", "pin": "changeme1"}

    assert redact_jsonable(value, level="private", policy=policy).value == {
        **value,
        "pin": "[REDACTED:denied]",
    }


def test_a_number_of_seven_digits_is_a_number_of_a_placeholder_still():
    text = "[REDACTED:email#1000000] a@b.example"

    assert cleaned(text, numbered=True) == "[REDACTED:email#1000000] [REDACTED:email#1000001]"
