"""Other scripts, other cases, other forms of the same letter, and colors."""

import re
from unicodedata import normalize

import made_up
import pytest
from click.testing import CliRunner

from kp_middleware.cli import main
from kp_middleware.privacy import Policy, redact_text

NAMES = ("пароль", "hasło", "contraseña", "lösenord", "パスワード", "비밀번호", "密码")
UNSEEN = (
    *("\u0000", "\u034f", "\u200e", "\u200f", "\u202a", "\u202e", "\u2061", "\u2064", "\u2066"),
    *("\u2069", "\ufe00", "\ufe0f", "\ufeff", "\U000e0041"),
)


@pytest.mark.parametrize("form", ["NFC", "NFD"])
@pytest.mark.parametrize("cased", [str.lower, str.upper, str.capitalize])
@pytest.mark.parametrize("name", NAMES)
def test_names_of_secrets_are_known_in_any_case_and_form(name, cased, form):
    text = f"{normalize(form, cased(name))}: {made_up.PASSWORD}"

    assert made_up.PASSWORD not in redact_text(text).text


@pytest.mark.parametrize("sign", ["：", "＝", "="])
def test_wide_signs_are_signs(sign):
    assert redact_text(f"HASŁO{sign}{made_up.PASSWORD}").text == f"HASŁO{sign}[REDACTED:password]"


@pytest.mark.parametrize("zero", ["\uff10", "\u0660", "\u06f0", "\u0966"], ids=ascii)
def test_digits_of_other_scripts_are_digits(zero):
    card = "".join(chr(ord(zero) + int(number)) for number in "4111111111111111")

    assert redact_text(f"card {card} today").text == "card [REDACTED:credit_card] today"


@pytest.mark.parametrize("sign", UNSEEN, ids=ascii)
def test_what_nobody_sees_hides_nothing(sign):
    text = f"pass{sign}word=qui{sign}et77 and card {sign.join('4111111111111111')}"

    assert redact_text(text).text == (
        f"pass{sign}word=[REDACTED:password] and card [REDACTED:credit_card]"
    )


@pytest.mark.parametrize(
    "text", ["PERSONNUMMER 8112189877", "FØDSELSNUMMER 12345678901", "TELÉFONO: 612 345 678 9"]
)
@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_cues_are_known_in_any_case_and_form(text, form):
    cleaned = redact_text(normalize(form, text), level="aggregated").text

    assert made_up.digits_left(cleaned) == ""


@pytest.mark.parametrize("form", ["NFC", "NFD"])
@pytest.mark.parametrize(
    ("denied", "text"),
    [("naïve", "NAÏVE"), ("Straße", "STRASSE"), ("strasse", "Straße"), ("ﾊﾟ", "ﾊﾟ")],
)
def test_a_denied_text_goes_in_any_form(denied, text, form):
    policy = Policy(deny=(normalize("NFC", denied),))

    assert redact_text(normalize(form, text), policy=policy).text == "[REDACTED:denied]"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<33>password<0>=<36>hunter22<0>", "<33>password<0>=<36>[REDACTED:password]<0>"),
        (
            '<34;1>"password"<0>: <0;32>"hunter22"<0>',
            '<34;1>"password"<0>: <0;32>"[REDACTED:password]"<0>',
        ),
        (
            "<1>Authorization:<0> Bearer <1>abcDEF123456",
            "<1>Authorization:<0> Bearer <1>[REDACTED:bearer_token]",
        ),
        ("mail <35>anna@example.org<0>", "mail <35>[REDACTED:email]<0>"),
    ],
    ids=["an assignment", "coloured JSON", "a header", "an address"],
)
def test_colours_hide_nothing_and_stay(text, expected):
    redacted = redact_text(coloured(text), level="aggregated")

    assert redacted.text == coloured(expected)


def coloured(marked):
    return re.sub(r"<([\d;]+)>", "\x1b[\\1m", marked)


def test_the_command_prints_colours_as_they_were_and_finds_nothing_in_what_it_printed():
    text = coloured("<33>password<0>=<36>hunter22<0>\n")

    printed = CliRunner().invoke(main, ["redact"], input=text).output
    checked = CliRunner().invoke(main, ["redact", "--check"], input=printed)

    assert printed == text.replace("hunter22", "[REDACTED:password]")
    assert checked.exit_code == 0
