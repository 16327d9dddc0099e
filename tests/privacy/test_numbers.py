"""Numbers that only look like ids stay; real ones go beside their word, or in their region."""

import random
import string

import made_up
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kp_middleware.privacy import Policy, redact_jsonable, redact_text

CODES = random.Random(20260502)


def code(form):
    """``9`` is any digit, ``A`` any capital, all else itself."""
    alphabets = {"9": string.digits, "A": string.ascii_uppercase}
    return "".join(CODES.choice(alphabets.get(sign, sign)) for sign in form)


FORMS = ("99.99.99-999.99", "AA999999A", "AAAAA9999A", "A999999999", "99999999A")
SPACED = ("9999 9999 9999", "999 999 9999")  # where others read, these are phone numbers
WORDS = {"US": "ssn", "DE": "Steuer-ID", "IN": "aadhaar", "CH": "AHV", "SE": "personnummer"}
ANNOUNCED = [
    *((word, made_up.BARE_IDS[region]) for region, word in WORDS.items()),
    ("身份证", "11030119900307235X"),  # of a county that is not listed
]


@given(
    st.lists(st.integers(0, 9999), min_size=8, max_size=8),
    st.sampled_from([" ", "  ", "\t", ", ", " | "]),
)
def test_a_row_of_small_integers_stays_before_the_file(numbers, between):
    row = between.join(map(str, numbers))

    assert redact_text(row).text == row


@pytest.mark.parametrize("form", [*FORMS, *SPACED])
def test_a_table_of_numbers_or_codes_stays(form):
    table = "\n".join(code(form) for _ in range(500))
    levels = ("private", "aggregated", "federated") if form in FORMS else ("private",)

    assert {redact_text(table, level=level).text for level in levels} == {table}


@pytest.mark.usefixtures("real_phones")
@pytest.mark.parametrize(("region", "number"), made_up.BARE_IDS.items(), ids=made_up.BARE_IDS)
def test_an_id_without_a_word_goes_only_in_its_region_and_where_others_read(region, number):
    row = f"row 14 | {number} | active"
    at_home = Policy(phone_regions=(region,))

    elsewhere = redact_text(row, level="aggregated")

    assert elsewhere.counts.keys() <= {"phone"}
    assert number not in redact_text(row, level="aggregated", policy=at_home).text
    assert redact_text(row, level="private", policy=at_home).text == row


@pytest.mark.parametrize("form", ["{word} on file: {number}", "{number} is the {word} we have"])
@pytest.mark.parametrize(("word", "number"), ANNOUNCED)
def test_an_id_goes_near_its_word_where_others_read(form, word, number):
    text = form.format(word=word, number=number)

    assert redact_text(text, level="private").text == text
    assert number not in redact_text(text, level="aggregated").text


def test_the_key_of_a_value_is_its_word():
    record = {"customerSsn": "123-45-6789", "order": "123-45-6789"}

    assert redact_jsonable(record, level="aggregated").value == {
        "customerSsn": "[REDACTED:us_ssn]",
        "order": "123-45-6789",
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4111 1111 1111 1111 12/29 123", "[REDACTED:credit_card] 12/29 123"),
        ("4111 1111 1111 1111 123", "[REDACTED:credit_card] 123"),
        (
            "4111 1111 1111 1111\n5500 0000 0000 0004",
            "[REDACTED:credit_card]\n[REDACTED:credit_card]",
        ),
        ("| 4111-1111-1111-1111 |", "| [REDACTED:credit_card] |"),
        ("1234 4111 1111 1111 1111", "1234 4111 1111 1111 1111"),
        ("4111 1111 1111 1111 7 8", "4111 1111 1111 1111 7 8"),
        ("order 4111111111111111", "order 4111111111111111"),
        ("visa 4111111111111111", "visa [REDACTED:credit_card]"),
    ],
)
def test_before_the_file_a_card_goes_by_its_word_or_its_spacing(text, expected):
    assert redact_text(text).text == expected


def test_digits_that_may_be_a_card_go_where_others_read():
    redacted = redact_text("order 4111111111111111", level="aggregated")

    assert redacted.text == "order [REDACTED:credit_card]"
