"""A secret that is found in one place goes in every place: of a text, and of a structure."""

import json
from urllib.parse import quote

import made_up
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kp_middleware.privacy import Policy, redact_jsonable, redact_text

SECRET = made_up.PASSWORD
GONE = "[REDACTED:password]"
ODD = 'Zürich"7\\8/' + made_up.characters(4)

TELLING = (
    "password={}",
    "postgresql://bob:{}@db.internal/app",
    "https://bob:{}@example.org/x",
    "curl -u bob:{} https://example.org",
    "Cookie: theme=dark; sid={}; lang=en",
    '2025-01-01 INFO {{"user": {{"password": "{}"}}}}',
)

SPELLINGS = {
    "as it is": lambda value: value,
    "in JSON": lambda value: json.dumps(value, ensure_ascii=False)[1:-1],
    "in JSON in ASCII": lambda value: json.dumps(value)[1:-1],
    "in JSON of PHP": lambda value: json.dumps(value)[1:-1].replace("/", "\\/"),
    "in JSON in JSON": lambda value: json.dumps(json.dumps(value))[3:-3],
    "in a repr": lambda value: repr(value)[1:-1].replace('"', '\\"'),
    "in a URL": lambda value: quote(value, safe=""),
    "in a path of a URL": quote,
}


@pytest.mark.parametrize("telling", TELLING)
@pytest.mark.parametrize("order", [1, -1], ids=["later", "earlier"])
def test_a_secret_is_found_in_the_rest_of_its_text(telling, order):
    lines = [telling.format(SECRET), f"I typed {SECRET}, and it said ok"]

    redacted = redact_text("\n".join(lines[::order]))

    assert SECRET not in redacted.text
    assert "and it said ok" in redacted.text
    assert {one.path for one in redacted.found} == {"line 1", "line 2"}


@pytest.mark.parametrize("spell", SPELLINGS.values(), ids=SPELLINGS.keys())
def test_a_secret_is_found_however_it_is_spelled(spell):
    document = {"login": {"password": ODD}, "said": f"I typed {spell(ODD)} twice"}

    assert rest_of_text(document) == f"I typed {GONE} twice"


def rest_of_text(document):
    """Return the text around the secret, redacted."""
    return redact_jsonable(document, level="private").value["said"]


def test_a_secret_goes_from_texts_keys_and_numbers_of_a_structure():
    number = 73519462
    document = {
        "before": [f"I typed {SECRET}"],
        SECRET: 1,
        "count": number,
        "inner": json.dumps({"said": f"{SECRET}!"}),
        "login": {"password": SECRET, "pin": {"secret": number}},
        "after": (f"it was {SECRET}",),
    }

    redacted = redact_jsonable(document, level="private")

    assert redacted.value == {
        "before": [f"I typed {GONE}"],
        GONE: 1,
        "count": GONE,
        "inner": json.dumps({"said": f"{GONE}!"}),
        "login": {"password": GONE, "pin": {"secret": GONE}},
        "after": (f"it was {GONE}",),
    }
    assert redacted.counts == {"password": 7}


HARMLESS = {
    "a word": "customer",
    "words": "customer service",
    "a name in code": "CustomerService",
    "a word and a sign": "customer!",
    "a region": "eu-central-1",
    "a date": "2026-05-01",
    "a path": "/run/secrets/db_1",
    "an address": "https://auth.example.org/v1",
    "a version": "10.0.19041.1",
    "a word and a year": "winter2025",
    "a host": "postgres1",
    "a program": "python3.11",
    "a model": "gpt-4o-mini",
    "too short": "abc123!",
    "a stand-in": "<your password>",
}


@pytest.mark.parametrize("value", HARMLESS.values(), ids=HARMLESS.keys())
def test_what_may_be_something_else_stays_elsewhere(value):
    assert (
        rest_of_text({"password": value, "said": f"look at {value} here"})
        == f"look at {value} here"
    )


BESIDE = {
    "found in JSON, said as it is": (
        {"log": f'x "password": {json.dumps(ODD)}'},
        f"I typed {ODD} twice",
        f"I typed {GONE} twice",
    ),
    "no secrets below a name of secrets": (
        {"credentials": {"region": "eu-central-17", "user": "anna.smith83", "password": SECRET}},
        f"anna.smith83 typed {SECRET} in eu-central-17",
        f"anna.smith83 typed {GONE} in eu-central-17",
    ),
    "a contact beside a secret": (
        {"login": f"anna@example.org password={SECRET}"},
        "anna@example.org",
        "anna@example.org",
    ),
    "what was cut off": (
        {"cut": "see table_customers_2024… [cut: 9000 characters in all]"},
        "SELECT * FROM table_customers_2024",
        "SELECT * FROM table_customers_2024",
    ),
    "part of a longer number of an order": (
        {"token": "order-12345"},
        "order-12345 and order-123456",
        f"{GONE} and order-123456",
    ),
    "part of a longer word": (
        {"password": "dragon42"},
        "dragon42, dragon421 and xdragon42",
        f"{GONE}, dragon421 and xdragon42",
    ),
}


@pytest.mark.parametrize(("document", "text", "left"), BESIDE.values(), ids=BESIDE.keys())
def test_only_what_is_a_secret_goes_from_the_rest_of_a_structure(document, text, left):
    assert rest_of_text({**document, "said": text}) == left


def test_what_is_allowed_stays_wherever_it_is():
    text = f"password={SECRET} and I typed {SECRET}"

    assert redact_text(text, policy=Policy(allow=(SECRET,))).text == text


@given(st.data())
def test_what_was_taken_out_as_a_secret_is_nowhere_in_what_is_left(data):
    signs = st.characters(codec="utf-8", categories=("L", "N", "P", "S"))
    value = data.draw(st.text(signs, min_size=6, max_size=40).map(lambda text: f"{text}7x4q1"))
    around = st.text(st.characters(codec="utf-8", exclude_categories=("C",)), max_size=20)
    document = {
        "before": f"{data.draw(around)} {value} {data.draw(around)}",
        "login": {"password": value},
        "list": [data.draw(around), value, json.dumps([value])],
    }

    redacted = redact_jsonable(document, level="private").value

    if redacted["login"]["password"] == GONE:
        assert value not in json.dumps(redacted, ensure_ascii=False)
        assert json.dumps(value)[1:-1] not in json.dumps(redacted)


@pytest.mark.parametrize("before", ["", "2025-01-01 INFO payload="], ids=["alone", "in a log"])
def test_a_secret_in_json_that_was_written_as_a_string_many_times_goes(before):
    document = {"password": SECRET, "user": "anna"}

    for _ in range(10):
        document = {"b": json.dumps(document)}
        redacted = redact_text(before + json.dumps(document)).text

        assert SECRET not in redacted
        assert "anna" in redacted
        assert json.loads(redacted.removeprefix(before))
