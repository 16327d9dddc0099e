"""Recording cuts long texts; what lay across the cut has lost its end, and goes all the same."""

import made_up
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kp_middleware.privacy import redact_text
from kp_middleware.recording import bounded_text

UNARMOURED = [value for name, value in made_up.PREFIXED.items() if "private key" not in name]
PLACES = [
    *made_up.IN_PLACE,
    *((f"I tried {{}}{end}", value) for value in UNARMOURED for end in ". ,"),
]
IDENTIFIERS = [*made_up.SENSITIVE.values(), *made_up.CONTACT.values()]


@st.composite
def cut_values(draw, places):
    """A text that was cut inside of the value that it holds, and what is left of the value."""
    form, value = draw(places)
    before = form.format("{}").partition("{}")[0]
    kept = value[: draw(st.integers(1, len(value)))]
    told = f"{before}{kept}"
    return bounded_text(told + "x" * 40, len(told.encode())), kept


@given(cut_values(st.sampled_from(PLACES)))
@example(("passphrase: correct horse … [cut: 66 characters in all]", "correct horse "))
def test_of_a_secret_that_was_cut_off_nothing_is_left(text_and_kept):
    text, kept = text_and_kept

    cleaned = redact_text(text).text

    assert [part for part in windows(kept) if part in cleaned] == []
    assert redact_text(cleaned).text == cleaned


@given(cut_values(st.sampled_from([("The record shows {}", value) for value in IDENTIFIERS])))
def test_of_a_number_that_was_cut_off_no_digit_is_left(text_and_kept):
    cleaned = redact_text(text_and_kept[0], level="aggregated").text

    assert redact_text(cleaned, level="aggregated").text == cleaned
    assert made_up.digits_left(cleaned.partition(" [cut:")[0]) == ""


def test_a_key_in_armour_goes_to_the_cut():
    key = made_up.PREFIXED["private key"]

    cleaned = redact_text(bounded_text(f"see {key}", 60)).text

    assert cleaned == "see [REDACTED:private_key]… [cut: " + f"{len(key) + 4} characters in all]"


CUT = "… [cut: 70000 characters in all]"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("we looked at the la", "we looked at the [REDACTED:cut]"),
        ("we looked at the ", "we looked at the "),
        ('{"a": "one two', '{"a": "one [REDACTED:cut]'),
        ("chapter 12 of 1", "chapter 12 of [REDACTED:cut]"),
        ("日本語の文章", "日本語の文章"),
        (f"first: abc{CUT}, second: abc ", f"first: [REDACTED:cut]{CUT}, second: abc "),
        ("a" * 9000, "a" * 4904 + "[REDACTED:cut]"),
        ("", ""),
    ],
    ids=[
        *("a word", "between words", "a string", "a number", "no spaces in this script"),
        *("cut in the middle, too", "four thousand characters at most", "nothing"),
    ],
)
def test_of_any_other_text_no_more_than_its_last_piece_goes(text, expected):
    assert redact_text(text + CUT).text == expected + CUT


def windows(kept):
    return {kept[start : start + 4] for start in range(len(kept) - 3)} - {"api_"}  # also a label's
