"""A user's own rules and exceptions, numbers for values, and the name of all rules in use."""

import re

import made_up
import pytest

from kp_middleware.errors import RedactionError
from kp_middleware.privacy import REDACTOR, Policy, check_clean, redact_jsonable, redact_text

KEY = made_up.PREFIXED["github"]
ANNA = "anna@example.org"
DENIED = "[REDACTED:denied]"

TEXTS = {
    "a denied word": ({"deny": ("Bluebird",)}, "Bluebird", DENIED),
    "a denied digit": ({"deny": ("0",)}, "0", DENIED),
    "a denied word in another case": ({"deny": ("naïve",)}, "NAÏVE", DENIED),
    "a denied word with what nobody sees": ({"deny": ("blue\u200bbird",)}, "bluebird", DENIED),
    "what nobody sees in a denied word": ({"deny": ("a b",)}, "a\u200b b", DENIED),
    "a denied text of signs": ({"deny": ("***",)}, "***", DENIED),
    "a denied pattern": (
        {"deny": (r"/ACME-\d+/",)},
        "see ACME-12, acme-12",
        f"see {DENIED}, acme-12",
    ),
    "a denied pattern around a finding": ({"deny": ("/.+/",)}, "mail a@b.example", DENIED),
    "no denied text in a placeholder": (
        {"deny": ("/.+/", "/x*/", "email")},
        "[REDACTED:email]",
        "[REDACTED:email]",
    ),
    "what is denied and allowed": (
        {"allow": ("a@b.example",), "deny": ("a@b.example",)},
        "a@b.example",
        DENIED,
    ),
    "an allowed text is the whole finding": (
        {"allow": (ANNA,)},
        f"{ANNA}, bob@example.org, postgres://{ANNA}/db",
        f"{ANNA}, [REDACTED:email], [REDACTED:connection_string]",
    ),
    "an allowed pattern covers the whole finding": (
        {"allow": (r"/\w+@acme\.example/",)},
        "a@acme.example b@acme.example.org",
        "a@acme.example [REDACTED:email]",
    ),
    "an allowed secret": ({"allow": (KEY,)}, KEY, KEY),
    "an allowed part of a secret": ({"allow": (KEY[:-1],)}, KEY, "[REDACTED:api_key]"),
    "an allowed pattern and a secret": ({"allow": ("/.*/",)}, KEY, "[REDACTED:api_key]"),
    "numbers that are there already": (
        {"numbered": True},
        "[REDACTED:email#4] a@b.example",
        "[REDACTED:email#4] [REDACTED:email#5]",
    ),
    "a number of seven digits": (
        {"numbered": True},
        "[REDACTED:email#1000000] a@b.example",
        "[REDACTED:email#1000000] [REDACTED:email#1000001]",
    ),
    "what goes before the file is not numbered": (
        {"deny": ("Bluebird",), "numbered": True},
        f"{KEY} password=hunter2 4111 1111 1111 1111 Bluebird",
        f"[REDACTED:api_key] password=[REDACTED:password] [REDACTED:credit_card] {DENIED}",
    ),
}


@pytest.mark.parametrize(("rules", "text", "expected"), TEXTS.values(), ids=TEXTS.keys())
def test_a_policy_is_followed_in_a_text(rules, text, expected):
    assert redact_text(text, level="aggregated", policy=Policy(**rules)).text == expected


@pytest.mark.parametrize("level", ["private", "federated", "aggregated"])
def test_a_denied_text_goes_at_every_level_whatever_its_case(level):
    text = "Bluebird and BLUEBIRDS, bluebird"

    redacted = redact_text(text, level=level, policy=Policy(deny=("bluebird",)))

    assert redacted.text == f"{DENIED} and {DENIED}S, {DENIED}"


SALARY = ("salary", "base_salary")
STRUCTURES = {
    "a small number": ({"deny": ("12",)}, {"n": 12}, {"n": DENIED}),
    "a part of a number": ({"deny": ("12",)}, {"n": 12345}, {"n": f"{DENIED}345"}),
    "a key": ({"deny": ("12",)}, {"12": 1}, {DENIED: 1}),
    "a string": ({"deny": ("12",)}, {"a": "12"}, {"a": DENIED}),
    "JSON in a string": ({"deny": ("12",)}, {"a": '{"b": 12}'}, {"a": f'{{"b": "{DENIED}"}}'}),
    "an item": ({"deny": ("12",)}, ["12"], [DENIED]),
    "a fraction": ({"deny": ("52.520008",)}, [52.520008], [DENIED]),
    "a number below zero": ({"deny": ("-5",)}, [-5], [DENIED]),
    "a power of ten": ({"deny": ("1e-07",)}, [1e-07], [DENIED]),
    "a power of ten in full": ({"deny": ("0.0000001",)}, [1e-07], [DENIED]),
    "a whole number as a float": ({"deny": ("7",)}, [-7.0], [DENIED]),
    "numbers that are not denied": (
        {"deny": ("bluebird",)},
        [52.520008, -5, 1e-07, 1e300, 12345.0, True],
        [52.520008, -5, 1e-07, 1e300, 12345.0, True],
    ),
    **{
        f"below {key}": (
            {"keys_deny": SALARY},
            {key: [50_000, {"per": "year"}]},
            {key: [DENIED, {"per": DENIED}]},
        )
        for key in ("salary", "Salary", "SALARY", "base-salary", "baseSalary")
    },
    "a counter": ({"keys_deny": ("token_count",)}, {"token_count": 7}, {"token_count": DENIED}),
    "an allowed key says nothing of its value": (
        {"keys_allow": ("csrf_token",)},
        {"csrf_token": "abc", "token": "abc", "csrfToken": KEY},
        {"csrf_token": "abc", "token": "[REDACTED:password]", "csrfToken": "[REDACTED:api_key]"},
    ),
    "an allowed key below a secret one": (
        {"keys_allow": ("region",)},
        {"credentials": {"region": "eu"}},
        {"credentials": {"region": "[REDACTED:password]"}},
    ),
    "an allowed text": (
        {"allow": ("changeme1",), "keys_deny": ("pin",)},
        {"text": "password=changeme1", "password": "changeme1", "pin": "changeme1"},
        {"text": "password=changeme1", "password": "changeme1", "pin": DENIED},
    ),
}


@pytest.mark.parametrize(("rules", "value", "expected"), STRUCTURES.values(), ids=STRUCTURES.keys())
def test_a_policy_is_followed_in_a_structure(rules, value, expected):
    assert redact_jsonable(value, level="private", policy=Policy(**rules)).value == expected


def test_equal_values_of_a_document_have_equal_numbers():
    policy = Policy(numbered=True)
    value = ["a@b.example to c@d.example", {"A@b.example": "call +49 30 1234567"}]

    redacted = redact_jsonable(value, level="aggregated", policy=policy)
    another = redact_jsonable(["e@f.example"], level="aggregated", policy=policy)

    assert redacted.value == [
        "[REDACTED:email#1] to [REDACTED:email#2]",
        {"[REDACTED:email#1]": "call [REDACTED:phone#1]"},
    ]
    assert redacted.counts == {"email": 3, "phone": 1}
    assert another.value == ["[REDACTED:email#1]"]


def test_the_gate_knows_the_policy():
    policy = Policy(allow=(ANNA,), deny=("bluebird",))
    check_clean(b'{"to": "anna@example.org"}', level="aggregated", policy=policy)

    with pytest.raises(RedactionError, match=r"^residual_secret at to \(denied, 8 chars\)$"):
        check_clean(b'{"to": "Bluebird"}', level="aggregated", policy=policy)


def test_a_user_s_rules_do_not_stop_the_words_of_the_format():
    policy = Policy(deny=("network", "thought"))

    body = b'{"metadata": {"visibility": "network"}, "steps": [{"type": "thought"}]}'

    assert check_clean(body, level="aggregated", policy=policy) is None


def test_each_policy_has_a_name_of_its_own():
    rules = [{"deny": ("a",)}, {"deny": ("b",)}]
    engines = [{"engines": (name,)} for name in ("presidio:none", "kingfisher", "other")]

    names = {Policy(**given).redactor for given in (*rules, *engines)}

    assert re.fullmatch(r"kp-redactor/1\+[0-9a-f]{12}", REDACTOR)
    assert Policy().redactor == REDACTOR
    assert len(names) == 5
    assert all(name.startswith(f"{REDACTOR}+") for name in names)


def test_the_rules_of_a_file_are_named_as_they_are_in_use(tmp_path, alone):
    file = tmp_path / "rules.toml"
    policy = Policy(engines=(f"gitleaks:{file}",))
    file.write_text("one")
    name = policy.redactor

    file.write_text("two")

    assert policy.redactor == name
    assert alone(f"print({policy!r}.redactor)").strip() != name


def test_regions_name_their_engine():
    policy = Policy(phone_regions=("DE",), engines=("kingfisher", "phonenumbers"))

    assert policy.engine_names == ("phonenumbers", "kingfisher")
