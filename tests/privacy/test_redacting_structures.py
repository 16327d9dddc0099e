import json

import made_up
import pytest

from kp_middleware.errors import RedactionError
from kp_middleware.privacy import Policy, redact_jsonable, redact_text

BLANK = "[REDACTED:password]"
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
    "columns and rows": (
        {
            "columns": ["id", "password", "token"],
            "rows": [[1, "x", "hello"], [2, "y", made_up.TOKEN]],
        },
        {"columns": ["id", "password", "token"], "rows": [[1, BLANK, "hello"], [2, BLANK, BLANK]]},
    ),
    "names and values in turn": (
        {"rawHeaders": ["Host", "x", "X-Api-Key", "y", "Accept", "password"]},
        {"rawHeaders": ["Host", "x", "X-Api-Key", BLANK, "Accept", "password"]},
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
    "the security code of a card": (
        {"card": {"number": "4111111111111111", "cvc": 837, "exp_month": 12}, "cardCvv": 4837},
        {
            "card": {"number": "[REDACTED:credit_card]", "cvc": BLANK, "exp_month": 12},
            "cardCvv": "[REDACTED:card_code]",
        },
    ),
    "not what only looks like one": (
        {"status_code": 837, "code": 314, "exp_year": 2030, "last4": 4242, "cvc_length": 3},
        {"status_code": 837, "code": 314, "exp_year": 2030, "last4": 4242, "cvc_length": 3},
    ),
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
    "what is printed when asked for a secret": (
        [
            {"tool": {"name": "sh"}, "input": {"cmd": "vault read -field=p db"}, "output": "x1y2"},
            {"tool": {"name": "get_secret"}, "input": {}, "output_summary": "not found."},
            {"bcrypt_hash": "x", "result": "a1b2c3"},
        ],
        [
            {"tool": {"name": "sh"}, "input": {"cmd": "vault read -field=p db"}, "output": BLANK},
            {"tool": {"name": "get_secret"}, "input": {}, "output_summary": "not found."},
            {"bcrypt_hash": "x", "result": BLANK},
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
    value = {"to": ["a@b.example", "c@d.example"], "pwd": "x"}

    assert redact_jsonable(value, level="aggregated").counts == {"email": 2, "password": 1}


def nested(depth):
    return json.loads("[" * depth + "]" * depth)


SECRET = made_up.PREFIXED["github"]
ALL_AS = Policy(deny=(r"/\ba/",))
REFUSED = {
    "too deep": (nested(66), "too_deep", "[0]" * 65),
    "too many": ([0] * 100_001, "too_large", "[99999]"),
    "too long": ({"n": "x" * 1_048_577}, "too_large", "n"),
    "too many passes": ({"steps": ["a" * 99]}, "redactor_error", "steps[0] (denied, 1 chars)"),
    "not of JSON": ({"n": [b"x"]}, "redactor_error", "n[0]"),
    "not of JSON, below a secret": ({SECRET: {1, 2}}, "redactor_error", "[REDACTED:api_key]"),
    "a number without end": ({"n": 10**5000}, "redactor_error", ""),
}


@pytest.mark.parametrize(("value", "reason", "where"), REFUSED.values(), ids=REFUSED.keys())
def test_in_doubt_a_structure_is_refused_and_not_quoted(value, reason, where):
    with pytest.raises(RedactionError) as refusal:
        redact_jsonable(value, level="private", policy=ALL_AS)

    assert (refusal.value.reason, refusal.value.where) == (reason, where)


LARGE = {
    "too deep": "[" * 80 + '"{}"' + "]" * 80,
    "too many": "[" + "1, " * 100_000 + '"{}"]',
}


@pytest.mark.parametrize("form", LARGE.values(), ids=LARGE.keys())
def test_json_in_a_string_that_is_over_a_limit_is_cleaned_as_text(form):
    outputs = [form.format(SECRET)] * 3

    cleaned = redact_jsonable({"outputs": outputs, "password": "x"}, level="private").value

    assert cleaned == {"outputs": [form.format("[REDACTED:api_key]")] * 3, "password": BLANK}


def test_a_text_that_grew_by_its_own_placeholders_is_not_too_large():
    text = "1.2.3.4\n" * 1000 + "see you\n" * (2**17 - 1000)

    redacted = redact_jsonable({"a": text}, level="aggregated")

    assert len(redacted.value["a"]) > len(text) == 2**20
    assert redacted.counts == {"ip": 1000}


@pytest.mark.parametrize("sign", ["\\n", "\\t", "\\u2028", "\\u00e9"])
def test_json_in_a_text_is_still_json_where_something_went_beside_an_escape(sign):
    line = '{"out": "x' + sign + "anna@example.org" + sign + 'y"}'

    cleaned = redact_text(f"INFO {line}", level="aggregated").text

    assert "anna" not in cleaned
    assert set(json.loads(cleaned.removeprefix("INFO "))) == {"out"}
