import re

import made_up
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kp_middleware.errors import RedactionError
from kp_middleware.privacy import REDACTOR, redact_text

PIECES = st.sampled_from(
    (
        *made_up.PREFIXED.values(),
        *made_up.CONTACT.values(),
        *made_up.SENSITIVE.values(),
        *(form.format(value) for form, value in made_up.IN_PLACE),
        *("[REDACTED:email]", "[REDACTED", "password=", "token: ", '"', "\\", "\u200b", "\ue000"),
        *("\x1b[1m", r"\n", r"\x1b[0m", "%3D", "%0A", "&quot;", r"\u003d"),
    )
)
TEXTS = st.lists(PIECES | st.text(max_size=8), max_size=6).map("".join)


@pytest.mark.parametrize("value", made_up.PREFIXED.values(), ids=made_up.PREFIXED.keys())
@pytest.mark.parametrize(
    "form", ["{}", "I tried {} and got 401.", "client = Client('{}')", "[x]({})", "a\n- {}\n"]
)
def test_a_token_goes_whole_wherever_it_stands(form, value):
    redacted = redact_text(form.format(value))

    assert made_up.remains(value, redacted.text) == ""
    assert sum(redacted.counts.values()) == 1


@pytest.mark.parametrize("value", made_up.ISSUED.values(), ids=made_up.ISSUED.keys())
@pytest.mark.parametrize(
    "form",
    [
        *(
            "mailgun_key: {}",
            'const plaidToken = "{}"',
            '"datadog" => "{}"',
            "ALGOLIA_API_KEY := `{}`",
        ),
        *("my.heroku.secret ?= '{}'", "okta: {}", '{{"sendbird": "{}"}}', "sonar.login', '{}"),
    ],
)
def test_what_a_vendor_issued_goes_beside_its_name(form, value):
    redacted = redact_text(form.format(value))

    assert made_up.remains(value, redacted.text) == ""


def test_the_values_of_a_kubernetes_secret_go():
    manifest = "kind: Secret\ndata:\n  extra: {}\n  user: {}\nmetadata:\n  name: db\n"

    redacted = redact_text(manifest.format(made_up.base64_of(12), made_up.base64_of(9)))

    assert redacted.text == "kind: Secret\ndata:\n[REDACTED:password]\nmetadata:\n  name: db\n"


@pytest.mark.parametrize("between", ["\n", ", ", '", "', "\nexport X="])
def test_the_secret_that_follows_the_id_of_an_aws_key_goes(between):
    secret = "wJ4" + made_up.characters(35) + "/+"

    redacted = redact_text(f"{made_up.PREFIXED['aws']}{between}{secret}")

    assert made_up.remains(secret, redacted.text) == ""


@pytest.mark.parametrize(("form", "value"), made_up.IN_PLACE)
def test_a_value_goes_because_of_its_place(form, value):
    redacted = redact_text(form.format(value))

    assert value not in redacted.text
    assert "[REDACTED:" in redacted.text


@pytest.mark.parametrize("value", made_up.CARDS.values(), ids=made_up.CARDS.keys())
@pytest.mark.parametrize("level", ["private", "aggregated", "federated"])
def test_payment_cards_go_at_every_level(level, value):
    redacted = redact_text(f"The record shows {value} today", level=level)

    assert made_up.digits_left(redacted.text) == ""


@pytest.mark.parametrize("value", made_up.IDENTITIES.values(), ids=made_up.IDENTITIES.keys())
def test_what_says_who_somebody_is_stays_at_private(value):
    redacted = redact_text(f"The record shows {value} today", level="private")

    assert redacted.text == f"The record shows {value} today"


@pytest.mark.parametrize("value", made_up.IDENTITIES.values(), ids=made_up.IDENTITIES.keys())
@pytest.mark.parametrize("level", ["aggregated", "federated"])
def test_what_says_who_somebody_is_goes_where_others_read(level, value):
    redacted = redact_text(f"The record shows {value} today", level=level)

    assert made_up.digits_left(redacted.text) == ""


@pytest.mark.parametrize("value", made_up.CONTACT.values(), ids=made_up.CONTACT.keys())
def test_contacts_stay_at_private(value):
    redacted = redact_text(f"owner {value} ", level="private")

    assert redacted.text == f"owner {value} "


@pytest.mark.parametrize("value", made_up.CONTACT.values(), ids=made_up.CONTACT.keys())
@pytest.mark.parametrize("level", ["aggregated", "federated"])
def test_contacts_go_where_others_read(level, value):
    redacted = redact_text(f"owner {value} ", level=level)

    assert value not in redacted.text
    assert sum(redacted.counts.values()) == 1


@pytest.mark.parametrize("text", made_up.HARMLESS)
def test_what_only_looks_like_it_stays(text):
    redacted = redact_text(text, level="aggregated")

    assert redacted.text == text
    assert not redacted.counts


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("password=hunter2", "password=[REDACTED:password]"),
        ("to anna@example.org.", "to [REDACTED:email]."),
        ("Bearer abcdef0123456789", "Bearer [REDACTED:bearer_token]"),
        ("ssh root@10.1.2.3", "ssh root@[REDACTED:ip]"),
        ("redis://cache:6379/0 is up", "[REDACTED:connection_string] is up"),
        ("/home/anna/x.py: ok", "[REDACTED:filepath]: ok"),
    ],
)
def test_placeholders_are_named_as_the_reference_names_them(text, expected):
    assert redact_text(text, level="aggregated").text == expected


def test_what_a_secret_shares_with_a_contact_goes_in_its_name():
    redacted = redact_text("https://bob:pa$s1@example.org/x", level="aggregated")

    assert redacted.text == "https://[REDACTED:basic_auth]/x"


def test_what_follows_a_placeholder_in_the_same_value_goes_too():
    redacted = redact_text("password=[REDACTED:email]rest7")

    assert redacted.text == "password=[REDACTED:email][REDACTED:password]"


def test_invisible_characters_hide_nothing():
    redacted = redact_text("pass\u200bword=hun\u2060ter2 x\u200by")

    assert redacted.text == "pass\u200bword=[REDACTED:password] x\u200by"


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


@pytest.mark.parametrize(
    "value",
    ["+49 30 12345678", made_up.PREFIXED["hubspot"], made_up.PREFIXED["npm"]],
    ids=["a phone", "a key that ends in letters", "a key"],
)
def test_what_is_glued_to_its_like_goes_in_any_number(value):
    redacted = redact_text(value * 500, level="aggregated")

    assert value not in redacted.text


def test_a_placeholder_that_was_cut_off_is_one_still():
    assert redact_text("api_key=[REDACTED:pass").text == "api_key=[REDACTED:pass"


def test_a_text_too_large_is_refused():
    with pytest.raises(RedactionError) as refusal:
        redact_text("a" * 1_048_577)

    assert refusal.value.reason == "too_large"


def test_the_redactor_says_which_rules_it_applied():
    name, _, digest = REDACTOR.partition("+")

    assert name == "kp-redactor/1"
    assert len(digest) == 12


def coloured(marked):
    return re.sub(r"<([\d;]+)>", "\x1b[\\1m", marked)


@given(TEXTS, st.sampled_from(["private", "aggregated"]))
def test_redacting_twice_changes_nothing_more(text, level):
    once = redact_text(text, level=level).text

    again = redact_text(once, level=level)

    assert again.text == once
    assert not again.counts


@given(TEXTS)
def test_what_others_may_read_needs_nothing_more_to_be_kept(text):
    shared = redact_text(text, level="aggregated").text

    kept = redact_text(shared, level="private")

    assert kept.text == shared


def test_a_random_value_goes_also_after_the_padding_of_another():
    one, other = ("q7R" + made_up.characters(4) + "q7Rx3Kd82Ja0sQ7bX1Zp4Tm9" for _ in range(2))

    assert redact_text(f"data: {one}==\n{other}").text == (
        "data: [REDACTED:password]\n[REDACTED:password]"
    )
