"""No engine holds a document up: it is stopped between two pieces, and then the row is blocked."""

import pytest

from kp_middleware.errors import RedactionError
from kp_middleware.privacy import ENGINE_TROUBLE, Policy, redact_text

SLOW = """
import json, time
now = [0.0]
time.monotonic = lambda: now[0]
from types import SimpleNamespace
from kp_middleware.errors import RedactionError
def slow(text, *_, **__):
    now[0] += 25
    shown.append(text)
    return []
sys.modules["phonenumbers"] = SimpleNamespace(PhoneNumberMatcher=slow)
shown = []
def ask(redact, value):
    try:
        redact(value, level="aggregated", policy=Policy(engines=("phonenumbers",)))
    except RedactionError as refusal:
        return str(refusal)
"""
"""An engine that takes 25 of the 60 seconds of a document for each piece of a text."""


def cleaned(text, *engines, regions=()):
    policy = Policy(engines=engines, phone_regions=regions)
    return redact_text(text, level="aggregated", policy=policy).text


@pytest.fixture
def slow(alone):
    """Runs lines with a slow engine in a Python of its own; what it printed."""
    return lambda lines: alone(SLOW, lines).splitlines()


def test_an_engine_is_stopped_between_two_pieces(slow):
    told = slow("print(ask(redact_text, 'a ' * 10_000), len(shown))")

    assert told == ["timeout at phonenumbers (20000 chars) 3"]
    assert "timeout" in ENGINE_TROUBLE


def test_the_texts_of_a_document_have_one_time_together(slow):
    told = slow("print(ask(redact_jsonable, ['the one', 'the two', 'the three', 'the four']))")

    assert told == ["timeout at [3] phonenumbers (8 chars)"]


def test_each_document_has_a_time_of_its_own(slow):
    told = slow("for n in range(9): print(ask(redact_text, f'the {n}'), len(shown))")

    assert told == [f"None {n + 1}" for n in range(9)]


def test_a_time_out_is_told_without_the_text(phones):
    def late(_):
        raise TimeoutError("a text that must not be quoted")

    with pytest.raises(RedactionError) as refusal:
        cleaned("late", phones("late", late))

    assert str(refusal.value) == "timeout at phonenumbers:late (4 chars)"
    assert refusal.value.__suppress_context__ or refusal.value.__context__ is None


@pytest.mark.parametrize("distance", [1, 7, 511, 512, 3583, 3584, 4095, 4096, 5000])
def test_what_is_found_in_a_piece_is_counted_in_the_text(phones, distance):
    sizes = []
    name = phones(
        f"every {distance}",
        lambda text: (
            sizes.append(len(text)) or [(i, i + 1) for i, c in enumerate(text) if c == "#"]
        ),
    )

    left = cleaned(("." * (distance - 1) + "#") * (20_000 // distance), name)

    assert left == ("." * (distance - 1) + "[REDACTED:phone]") * (20_000 // distance)
    assert max(sizes) == 4096


def test_a_place_beyond_its_piece_is_a_failure(phones):
    name = phones("beyond", lambda _: [(0, 4097)])

    with pytest.raises(RedactionError, match="engine_failed at phonenumbers:beyond"):
        cleaned("abcde " * 1000, name)


@pytest.mark.parametrize("before", ["1 ", "1" * 30 + " ", "12,", "(0 ", "a1", "1/", "1 - "])
def test_a_phone_number_is_found_after_any_number_of_others(before):
    pytest.importorskip("phonenumbers", reason="the extra phones is not installed")
    text = before * 20_000 + ", at 9123 4567"

    left = cleaned(text, regions=("SG",))

    assert cleaned(text).endswith(", at 9123 4567")
    assert left.endswith(", at [REDACTED:phone]")


@pytest.mark.parametrize("before", ["a ", "1 ", ". ", "\u65e5", "/"], ids=ascii)
@pytest.mark.parametrize("shift", range(0, 16, 3))
def test_a_phone_number_where_a_text_is_cut_is_found(before, shift):
    pytest.importorskip("phonenumbers", reason="the extra phones is not installed")
    text = (before * 4096)[: 4096 - shift] + "\t9123 4567, b"

    left = cleaned(text, regions=("SG",))

    assert cleaned(text).endswith("\t9123 4567, b")
    assert left.endswith("\t[REDACTED:phone], b")
