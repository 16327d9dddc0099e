import json

import made_up
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kp_middleware.errors import RedactionError
from kp_middleware.privacy import Policy, check_clean, redact_jsonable, redact_text

BLANK = "[REDACTED:password]"
KEYS = st.sampled_from(
    ("password", "apiKey", "note", "phone", "id", "name", "value", "max_tokens", "a@b.example")
)
STRINGS = st.sampled_from(
    (
        *made_up.PREFIXED.values(),
        *made_up.CONTACT.values(),
        *(form.format(value) for form, value in made_up.IN_PLACE),
        *("--password", "secret", '{"token": ["x1", {"a": "b@c.example"}]}', "[REDACTED:email]"),
    )
)
LEAVES = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | STRINGS | st.text()
)
DOCUMENTS = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(KEYS | st.text(), inner, max_size=4)
    ),
    max_leaves=12,
)

CASES = {
    "quoted key": ({"password": made_up.PASSWORD}, {"password": BLANK}),
    "camel case": (
        {"dbPassword": "x", "accessToken": "y"},
        {"dbPassword": BLANK, "accessToken": BLANK},
    ),
    "header": (
        {"Authorization": "x", "X-Api-Key": "y"},
        {"Authorization": BLANK, "X-Api-Key": BLANK},
    ),
    "all below a key": (
        {"credentials": {"user": "bob", "list": ["x", 4711, {"y": "z"}]}},
        {"credentials": {"user": "bob", "list": [BLANK, BLANK, {"y": BLANK}]}},
    ),
    "not what is no secret": (
        {"secret": None, "token": True, "password": "", "max_tokens": 512, "token_type": "x"},
        {"secret": None, "token": True, "password": "", "max_tokens": 512, "token_type": "x"},
    ),
    "a counter below": ({"token": {"expires_in": 3600}}, {"token": {"expires_in": 3600}}),
    "name and value": (
        [{"name": "DB_PASSWORD", "value": "x"}, {"key": "color", "value": "red"}],
        [{"name": "DB_PASSWORD", "value": BLANK}, {"key": "color", "value": "red"}],
    ),
    "arguments": (["login", "--token", "x", "-v", "y"], ["login", "--token", BLANK, "-v", "y"]),
    "a form": (
        {"element": "Password textbox", "text": "x"},
        {"element": "Password textbox", "text": BLANK},
    ),
    "name and content, type and value": (
        [
            {"name": "password", "content": "x"},
            {"type": "password", "value": "x"},
            {"field": "password", "val": "x"},
            {"key": "DB_PASSWORD", "data": "x"},
        ],
        [
            {"name": "password", "content": BLANK},
            {"type": "password", "value": BLANK},
            {"field": "password", "val": BLANK},
            {"key": "DB_PASSWORD", "data": BLANK},
        ],
    ),
    "not what a tool of that name says": (
        {"role": "tool", "name": "reset_password", "content": "done"},
        {"role": "tool", "name": "reset_password", "content": "done"},
    ),
    "a user and a password": (["curl", "-u", "bob:x7q"], ["curl", "-u", "bob:" + BLANK]),
    "keys written oddly": (
        {"pass_word": "x", "passw\u200bord": "y"},
        {"pass_word": BLANK, "passw\u200bord": BLANK},
    ),
    "pairs": (
        {"headers": [["X-Api-Key", "x"], ["Accept", "y"]], "columns": ["password", "email"]},
        {"headers": [["X-Api-Key", BLANK], ["Accept", "y"]], "columns": ["password", "email"]},
    ),
    "json in a string": (
        '{"api_key": ["x", "y"], "n": 1}',
        '{"api_key": ["[REDACTED:password]", "[REDACTED:password]"], "n": 1}',
    ),
    "json in json in a string": (
        {"body": json.dumps({"body": json.dumps({"pwd": "x"})})},
        {"body": json.dumps({"body": json.dumps({"pwd": BLANK})})},
    ),
    "json without anything is not touched": ('{"a":1.10,  "b":[]}', '{"a":1.10,  "b":[]}'),
    "quotes in a string": (
        {"cmd": 'cat /home/alice/"my file"'},
        {"cmd": 'cat [REDACTED:filepath]"my file"'},
    ),
    "a card as a number": ({"n": [4111111111111111]}, {"n": ["[REDACTED:credit_card]"]}),
    "a number announced by its key": (
        {"ssn": 123456789, "phone": "5551234567", "at": 1763720000000},
        {"ssn": "[REDACTED:us_ssn]", "phone": "[REDACTED:phone]", "at": 1763720000000},
    ),
    "keys": ({"anna@example.org": 1}, {"[REDACTED:email]": 1}),
    "keys that become the same": (
        {"anna@example.org": 1, "bob@example.org": 2, "[REDACTED:email]": 3},
        {"[REDACTED:email]": 1, "[REDACTED:email] 2": 2, "[REDACTED:email] 3": 3},
    ),
    "a tuple stays one": (("a", "bob@example.org"), ("a", "[REDACTED:email]")),
    "name and value, otherwise": (
        [
            {"Name": "DB_PASSWORD", "Value": "x"},
            {"ParameterKey": "DbPassword", "ParameterValue": "x"},
            {"Key": "api_key", "values": ["x", "y"]},
            {"name": "secret", "default": "x", "val": "y"},
            {"type": "password", "value": "x", "name": "p"},
        ],
        [
            {"Name": "DB_PASSWORD", "Value": BLANK},
            {"ParameterKey": "DbPassword", "ParameterValue": BLANK},
            {"Key": "api_key", "values": [BLANK, BLANK]},
            {"name": "secret", "default": BLANK, "val": BLANK},
            {"type": "password", "value": BLANK, "name": "p"},
        ],
    ),
    "names that say where": (
        {"password_prod": "x", "API_KEY_PROD": "y", "private_key_pem": "z", "tokenStaging": "t"},
        {
            "password_prod": BLANK,
            "API_KEY_PROD": BLANK,
            "private_key_pem": BLANK,
            "tokenStaging": BLANK,
        },
    ),
    "a card as a counter": (
        {"credentials": {"count": 4111111111111111, "limit": 5}},
        {"credentials": {"count": "[REDACTED:credit_card]", "limit": 5}},
    ),
    "a key twice in a string": (
        '{"token": "abc", "token": 1}',
        '{"token": "[REDACTED:password]", "token": 1}',
    ),
}


@pytest.mark.parametrize(("value", "expected"), CASES.values(), ids=CASES.keys())
def test_a_structure_is_cleaned_and_keeps_its_shape(value, expected):
    assert redact_jsonable(value, level="aggregated").value == expected


def test_counts_say_how_many_of_what():
    redacted = redact_jsonable(
        {"to": ["a@b.example", "c@d.example"], "pwd": "x"}, level="aggregated"
    )

    assert dict(redacted.counts) == {"email": 2, "password": 1}


def nested(depth):
    return json.loads("[" * depth + "]" * depth)


REFUSED = {
    "too deep": (nested(66), "too_deep", "[0]" * 65),
    "too many": ([0] * 100_001, "too_large", "[99999]"),
    "too long": ({"a": "x" * 1_048_577}, "too_large", "a"),
    "not of JSON": ({"a": [b"x"]}, "redactor_error", "a[0]"),
    "a number without end": ({"n": 10**5000}, "redactor_error", ""),
}


@pytest.mark.parametrize(("value", "reason", "where"), REFUSED.values(), ids=REFUSED.keys())
def test_in_doubt_a_structure_is_refused(value, reason, where):
    with pytest.raises(RedactionError) as refusal:
        redact_jsonable(value, level="private")

    assert (refusal.value.reason, refusal.value.where) == (reason, where)


LARGE = {
    "too deep": "[" * 80 + '"{}"' + "]" * 80,
    "too many": "[" + "1, " * 100_000 + '"{}"]',
}


@pytest.mark.parametrize("form", LARGE.values(), ids=LARGE.keys())
def test_json_in_a_string_that_is_over_a_limit_is_cleaned_as_text(form):
    outputs = [form.format(made_up.PREFIXED["github"])] * 3

    cleaned = redact_jsonable({"outputs": outputs, "password": "x"}, level="private").value

    assert cleaned == {"outputs": [form.format("[REDACTED:api_key]")] * 3, "password": BLANK}


def test_what_takes_too_many_passes_is_refused_with_path_rule_and_length():
    policy = Policy(deny=(r"/\ba/",))

    with pytest.raises(RedactionError) as refusal:
        redact_jsonable({"steps": ["a" * 99]}, level="private", policy=policy)

    assert str(refusal.value) == "redactor_error at steps[0] (denied, 1 chars)"


def test_a_refusal_does_not_quote_the_value():
    with pytest.raises(RedactionError) as refusal:
        redact_jsonable({made_up.PREFIXED["github"]: {1, 2}}, level="private")

    assert refusal.value.where == "[REDACTED:api_key]"


@given(DOCUMENTS)
def test_any_document_keeps_its_shape(document):
    redacted = redact_jsonable(document, level="aggregated")

    assert made_up.shape(redacted.value) == made_up.shape(document)


@given(DOCUMENTS, st.sampled_from(["private", "aggregated"]))
def test_what_was_cleaned_is_clean(document, level):
    cleaned = redact_jsonable(document, level=level).value

    check_clean(json.dumps(cleaned).encode(), level=level)


@given(DOCUMENTS)
def test_cleaning_twice_changes_nothing_more(document):
    once = redact_jsonable(document, level="aggregated").value

    again = redact_jsonable(once, level="aggregated")

    assert again.value == once
    assert not again.counts


def test_a_text_that_grew_by_its_own_placeholders_is_not_too_large():
    text = "1.2.3.4\n" * (2**20 // 8)

    redacted = redact_jsonable({"a": text}, level="aggregated")

    assert set(redacted.value["a"].split()) == {"[REDACTED:ip]"}


@pytest.mark.parametrize("sign", ["\\n", "\\t", "\\u2028", "\\u00e9"])
def test_json_in_a_text_is_still_json_where_something_went_beside_an_escape(sign):
    line = '{"out": "x' + sign + "anna@example.org" + sign + 'y"}'

    cleaned = redact_text(f"INFO {line}", level="aggregated").text

    assert "anna" not in cleaned
    assert set(json.loads(cleaned.removeprefix("INFO "))) == {"out"}
