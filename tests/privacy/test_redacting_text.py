import made_up
import pytest

from kp_middleware.errors import RedactionError
from kp_middleware.privacy import redact_text

LEVELS = ("private", "aggregated", "federated")
PERSONAL = made_up.IDENTITIES | made_up.CONTACT


@pytest.mark.parametrize(
    "form", ["{}", "I tried {} and got 401.", "client = Client('{}')", "[x]({})", "a\n- {}\n"]
)
def test_a_token_goes_whole_wherever_it_stands(form):
    redacted = {kind: redact_text(form.format(one)) for kind, one in made_up.PREFIXED.items()}

    assert {kind: one.text for kind, one in redacted.items() if sum(one.counts.values()) != 1} == {}
    assert kinds_left(made_up.PREFIXED, redacted) == []


@pytest.mark.parametrize(
    "form",
    [
        *("mailgun_key: {}", 'const plaidToken = "{}"', '"datadog" => "{}"'),
        *("ALGOLIA_API_KEY := `{}`", "my.heroku.secret ?= '{}'", "okta: {}"),
        *('{{"sendbird": "{}"}}', "sonar.login', '{}"),
    ],
)
def test_what_a_vendor_issued_goes_beside_its_name(form):
    redacted = {kind: redact_text(form.format(one)) for kind, one in made_up.ISSUED.items()}

    assert kinds_left(made_up.ISSUED, redacted) == []


def kinds_left(values, redacted):
    """The kinds of values of which a half is left."""
    return [kind for kind, one in redacted.items() if made_up.remains(values[kind], one.text)]


@pytest.mark.parametrize("value", made_up.CARDS.values(), ids=made_up.CARDS.keys())
def test_payment_cards_go_at_every_level(value):
    left = [redact_text(f"The record shows {value} today", level=level).text for level in LEVELS]

    assert list(map(made_up.digits_left, left)) == ["", "", ""]


@pytest.mark.parametrize("value", PERSONAL.values(), ids=PERSONAL.keys())
def test_what_says_who_somebody_is_stays_at_private_and_goes_where_others_read(value):
    text = f"The record shows {value} today"

    private, *shared = (redact_text(text, level=level) for level in LEVELS)

    assert private.text == text
    for redacted in shared:
        assert value not in redacted.text
        assert made_up.digits_left(redacted.text) == ""
        assert sum(redacted.counts.values()) == 1


@pytest.mark.parametrize("text", made_up.HARMLESS)
def test_what_only_looks_like_it_stays(text):
    redacted = redact_text(text, level="aggregated")

    assert redacted.text == text
    assert not redacted.counts


PADDED = [f"q7R{made_up.characters(4)}q7Rx3Kd82Ja0sQ7bX1Zp4Tm9" for _ in range(2)]
EXPECTED = {
    "a password": ("password=hunter2", "password=[REDACTED:password]"),
    "an address": ("to anna@example.org.", "to [REDACTED:email]."),
    "a header": ("Bearer abcdef0123456789", "Bearer [REDACTED:bearer_token]"),
    "a host": ("ssh root@10.1.2.3", "ssh root@[REDACTED:ip]"),
    "a service": ("redis://cache:6379/0 is up", "[REDACTED:connection_string] is up"),
    "a card in a form": (
        "-d 'card[number]'=4242424242424242 -d 'card[cvc]'=314",
        "-d 'card[number]'=[REDACTED:credit_card] -d 'card[cvc]'=[REDACTED:card_code]",
    ),
    "not a column of a matrix": ("csc[100] = a.csc[3]", "csc[100] = a.csc[3]"),
    "a path": ("/home/anna/x.py: ok", "[REDACTED:filepath]: ok"),
    "a secret that reads like a contact": (
        "https://bob:pa$s1@example.org/x",
        "https://[REDACTED:basic_auth]/x",
    ),
    "what follows a placeholder in the same value": (
        "password=[REDACTED:email]rest7",
        "password=[REDACTED:email][REDACTED:password]",
    ),
    "a placeholder that was cut off": ("api_key=[REDACTED:pass", "api_key=[REDACTED:pass"),
    "the values of a kubernetes secret": (
        f"kind: Secret\ndata:\n  extra: {made_up.base64_of(12)}\nmetadata:\n  name: db\n",
        "kind: Secret\ndata:\n[REDACTED:password]\nmetadata:\n  name: db\n",
    ),
    "a random value after the padding of another": (
        f"data: {PADDED[0]}==\n{PADDED[1]}",
        "data: [REDACTED:password]\n[REDACTED:password]",
    ),
}


@pytest.mark.parametrize(("text", "expected"), EXPECTED.values(), ids=EXPECTED.keys())
def test_a_placeholder_stands_for_what_went_under_the_name_that_the_reference_has(text, expected):
    assert redact_text(text, level="aggregated").text == expected


@pytest.mark.parametrize(
    "value",
    ["+49 30 12345678", made_up.PREFIXED["hubspot"], made_up.PREFIXED["npm"]],
    ids=["a phone", "a key that ends in letters", "a key"],
)
def test_what_is_glued_to_its_like_goes_in_any_number(value):
    redacted = redact_text(value * 500, level="aggregated")

    assert value not in redacted.text


@pytest.mark.parametrize("sign", ["{", "{{", "$"])
@pytest.mark.parametrize("form", ["DB_PASSWORD={}", "password: {}\nuser: a", "curl -u bob:{} x.io"])
def test_a_random_value_goes_though_it_begins_as_a_template_does(form, sign):
    assert "Zk7Qw9Lp2Xr4" not in redact_text(form.format(f"{sign}Zk7Qw9Lp2Xr4")).text


@pytest.mark.parametrize("name", ["$dbPass2", "$MY_SECRET_2", "${githubTokenV2}", "{password"])
def test_a_variable_stays(name):
    assert redact_text(f"DB_PASSWORD={name}").text == f"DB_PASSWORD={name}"


def test_a_text_too_large_is_refused():
    with pytest.raises(RedactionError) as refusal:
        redact_text("a" * 1_048_577)

    assert refusal.value.reason == "too_large"
