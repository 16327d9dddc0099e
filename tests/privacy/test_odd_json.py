"""JSON in a text, or not quite JSON: what stands below the name of a secret goes still."""

import json

import forms
import made_up
import pytest

from kp_middleware.privacy import Policy, redact_jsonable, redact_text

SECRET = made_up.PASSWORD
BLANK = "[REDACTED:password]"
BELOW = f'"credentials": {{"part": "bob7", "list": ["{SECRET}", {{"x": "y z"}}]}}'
ODD = {
    "a number that is none": f'{{"a": NaN, {BELOW}}}',
    "a number too large": f'{{"a": 1e999, {BELOW}}}',
    "a key twice": f'{{"a": 1, "a": 2, {BELOW}}}',
    "a document a line": f'{{"a": 1}}\n{{{BELOW}}}\n{{"b": 2}}',
    "after a status": f"HTTP 200\n{{{BELOW}}}",
    "before words": f"{{{BELOW}}} and so on",
    "cut": f"{{{BELOW[:-5]}",
    "deeper than anybody reads": "[" * 5000 + f"{{{BELOW}}}",
    "written as Python does": f"{{'a': None, {BELOW}}}".replace('"', "'"),
    "written into a string": json.dumps(f"x {{{BELOW}}}")[1:-1],
    "written into a string twice": json.dumps(json.dumps(f"x {{{BELOW}}}"))[1:-1],
    "spread over lines": "x " + json.dumps(json.loads(f"{{{BELOW}}}"), indent=2),
}


@pytest.mark.parametrize("alphabet", forms.ALPHABETS)
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_password_goes_in_json_in_json(alphabet, depth):
    [password] = forms.passwords(alphabet, 1)
    text = json.dumps({"user": "a", "password": password})
    for _ in range(depth - 1):
        text = json.dumps({"payload": text})

    redacted = redact_text(f"INFO got {text}").text

    assert password[:9] not in redacted
    assert password[-9:] not in redacted


@pytest.mark.parametrize("text", ODD.values(), ids=ODD.keys())
def test_what_stands_below_a_secret_name_goes_also_in_a_string_of_a_structure(text):
    cleaned = redact_text(text).text
    in_a_string = redact_jsonable({"output": text}, level="private").value["output"]

    assert [one for one in (SECRET, "bob7", "y z") if one in cleaned + in_a_string] == []
    assert cleaned.count(BLANK) == 3
    assert redact_text(cleaned).text == cleaned


@pytest.mark.parametrize(
    "text",
    [
        'x {"notes": {"part": "bob7"}}',
        'x {"token": {"type": "string", "required": true}, "n": [1, 2]}',
        'x {"token": {"expires_in": 3600, "count": 2}}',
        "'password': {see the manual of the server} and don't ask 'why'",
        'x {"password": {}} "a" "b"',
    ],
    ids=["no secret's name", "a schema", "counters", "prose", "nothing below"],
)
def test_other_texts_stay(text):
    assert redact_text(text).text == text


def test_what_is_allowed_below_a_name_stays_and_denied_names_count():
    policy = Policy(allow=("bob7",), keys_deny=("salary",), keys_allow=("token",))
    text = 'x {"secret": ["bob7", "c d"], "salary": {"per year": 50000}, "token": {"a": "e f"}}'

    assert redact_text(text, policy=policy).text == (
        'x {"secret": ["bob7", "[REDACTED:password]"], "salary": {"per year": [REDACTED:denied]}, '
        '"token": {"a": "e f"}}'
    )
