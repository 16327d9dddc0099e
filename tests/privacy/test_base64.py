"""Base64 is decoded once, and removed as a whole if it contains a secret."""

import base64

import made_up
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kp_middleware.privacy import Policy, redact_jsonable, redact_text

ENV = f"HOST=db\nDB_PASSWORD={made_up.PASSWORD}\nDEBUG=1 # ???>>>\n"
STANDARD = base64.b64encode(ENV.encode()).decode()
URL_SAFE = base64.urlsafe_b64encode(ENV.encode()).decode()
LINES = base64.encodebytes((ENV + "NAME=x\n" * 20).encode()).decode().rstrip("\n")
SCRIPT = base64.b64encode(f'$password = "{made_up.PASSWORD}"'.encode("utf-16-le")).decode()
PRINTED = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=15, max_size=60)
ADDRESS = base64.b64encode(b"write to anna@example.org today").decode()
IMAGE = base64.b64encode(b"\x89PNG\r\n\x1a\n" + made_up.base64_of(3000).encode()).decode()


@pytest.mark.parametrize(
    ("form", "encoded"),
    [
        ("{}", STANDARD),
        ("Observation: {} is what the file holds", STANDARD),
        ('{{"content": "{}", "encoding": "base64"}}', STANDARD),
        ("data:text/plain;base64,{}", STANDARD),
        ("https://example.org/export/{}", URL_SAFE.rstrip("=")),
        ("echo {} | base64 -d", URL_SAFE),
        ("$ base64 .env\n{}\n$", LINES),
        ("powershell -EncodedCommand {}", SCRIPT),
    ],
    ids=["alone", "prose", "JSON", "a data URI", "a path", "url-safe", "lines", "UTF-16"],
)
def test_base64_of_a_secret_goes_whole(form, encoded):
    redacted = redact_text(form.format(encoded))

    assert redacted.text == form.format("[REDACTED:password]")


def test_base64_of_a_token_goes_in_a_structure():
    encoded = base64.b64encode(f"see {made_up.PREFIXED['github']}".encode()).decode()

    redacted = redact_jsonable({"files": [{"body": encoded}]}, level="private")

    assert redacted.value == {"files": [{"body": "[REDACTED:api_key]"}]}


@pytest.mark.parametrize(
    ("level", "rules", "expected"),
    [
        ("aggregated", {}, "[REDACTED:email]"),
        ("private", {}, ADDRESS),
        ("private", {"deny": ("today",)}, "[REDACTED:denied]"),
        ("aggregated", {"allow": ("anna@example.org",)}, ADDRESS),
    ],
    ids=["an address where others read", "at private", "denied", "allowed"],
)
def test_base64_goes_as_what_is_in_it_would(level, rules, expected):
    assert redact_text(ADDRESS, level=level, policy=Policy(**rules)).text == expected


@pytest.mark.parametrize(
    "text",
    [
        f"data:image/png;base64,{IMAGE}",
        base64.b64encode(b"nothing in here is worth hiding at all").decode(),
        base64.b64encode(b'{"offset": 20, "after": "User:12345"}').decode(),
        base64.b64encode(b"arrayconnection:1024").decode(),
        "a" * 64 + "\n" + "0123456789abcdef" * 4,
        "node_modules/some-package/dist/components/ButtonGroup/index",
    ],
    ids=["an image", "text", "a page's cursor", "a connection's cursor", "hashes", "a path"],
)
def test_other_base64_stays(text):
    assert redact_text(text, level="aggregated").text == text


def test_one_piece_of_base64_does_not_take_the_next_with_it():
    plain = base64.b64encode(b"nothing in here is worth hiding").decode()

    redacted = redact_text(f"{plain} {STANDARD} {plain}")

    assert redacted.text == f"{plain} [REDACTED:password] {plain}"


@given(PRINTED, st.sampled_from(["private", "aggregated"]))
def test_base64_of_a_secret_goes_whatever_is_before_it(text, level):
    encoded = base64.b64encode(f"{text} password={made_up.PASSWORD}".encode()).decode()

    assert encoded not in redact_text(f"got {encoded} back", level=level).text
