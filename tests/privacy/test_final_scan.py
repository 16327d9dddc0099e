import json

import made_up
import pytest

from kp_middleware.errors import RedactionError
from kp_middleware.privacy import check_clean

SECRET = made_up.PREFIXED["github"]
HEADERS = {"steps": [{"input": {"headers": [{"name": "x", "value": SECRET}]}}]}
CAUGHT = {
    "in a string": (HEADERS, "steps[0].input.headers[0].value (api_key, 40 chars)"),
    "in a key": ({"a": {SECRET: 1}}, "a.{key} (api_key, 40 chars)"),
    "below a key": ({"token": ["xyz"]}, "token[0] (password, 3 chars)"),
    "in a number": ({"card": 4111111111111111}, "card (credit_card, 16 chars)"),
    "in JSON in a string": ({"j": '{"pwd": "xyz"}'}, "j.pwd (password, 3 chars)"),
    "below a secret key": ({SECRET: {1: "a@b.example"}}, "{key} (api_key, 40 chars)"),
}


@pytest.mark.parametrize(("document", "where"), CAUGHT.values(), ids=CAUGHT.keys())
def test_a_leftover_is_caught_and_not_quoted(document, where):
    with pytest.raises(RedactionError) as refusal:
        check_clean(json.dumps(document).encode(), level="private")

    assert (refusal.value.reason, refusal.value.where) == ("residual_secret", where)
    assert SECRET not in str(refusal.value)


def test_a_contact_passes_at_private_only():
    body = b'{"to": "anna@example.org"}'

    check_clean(body, level="private")

    with pytest.raises(RedactionError, match=r"^residual_secret at to \(email, 16 chars\)$"):
        check_clean(body, level="aggregated")


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"\xff", b'{"a": 1, "a": 2}', b"[" * 100_000],
    ids=["nothing", "half", "not text", "a key twice", "a pit"],
)
def test_what_is_not_json_does_not_pass(body):
    with pytest.raises(RedactionError) as refusal:
        check_clean(body, level="private")

    assert refusal.value.reason == "invalid_after_redaction"


def test_what_is_clean_passes():
    body = json.dumps({"password": "[REDACTED:password]", "note": list(made_up.HARMLESS)})

    assert check_clean(body.encode(), level="aggregated") is None
