"""No engine holds a document up: it is stopped between two pieces, and then the row is blocked."""

import pytest

from kp_middleware.errors import RedactionError
from kp_middleware.privacy import ENGINE_TROUBLE, Policy, redact_jsonable, redact_text
from kp_middleware.privacy._documents import fail_closed
from kp_middleware.privacy._plugins import Engine, check_time, document, engine, pieces
from kp_middleware.privacy._rules import Span


class Clock:
    """A clock that tests set."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def slow(clock):
    """An engine that takes a second for each piece of a text, and the pieces that it was shown."""
    shown = []

    def find(text):
        clock.now += 1
        shown.append(text)
        if "late" in text:
            raise TimeoutError("a text that must not be quoted")
        return [(0, 1, "x")]

    return Engine("slow", "secret", find, piece_size=4), shown


def test_an_engine_is_stopped_between_two_pieces(slow, clock):
    looks, shown = slow

    with document(1.5, clock=clock), pytest.raises(RedactionError) as refusal:
        looks.spans("a a a a a a a ")

    assert str(refusal.value) == "timeout at slow (14 chars)"
    assert refusal.value.reason in ENGINE_TROUBLE
    assert len(shown) == 2


def test_the_texts_of_a_document_have_one_time_together(slow, clock):
    looks, shown = slow

    with document(1.5, clock=clock), document(1000, clock=clock):
        looks.spans("one")
        looks.spans("two")
        with pytest.raises(RedactionError, match=r"^timeout at slow \(5 chars\)$"):
            looks.spans("three")

    assert shown == ["one", "two"]


def test_each_document_has_a_time_of_its_own(slow, clock):
    looks, shown = slow

    for text in ("one", "two", "six"):
        with document(0.5, clock=clock):
            looks.spans(text)

    assert shown == ["one", "two", "six"]


def test_a_time_out_is_told_without_the_text(slow):
    with pytest.raises(RedactionError) as refusal:
        slow[0].spans("late")

    assert str(refusal.value) == "timeout at slow (4 chars)"
    assert refusal.value.__suppress_context__ or refusal.value.__context__ is None


def test_what_is_found_in_a_piece_is_counted_in_the_text(slow):
    assert slow[0].spans("a b\nc\n") == [Span(0, 1, "x", "secret"), Span(4, 5, "x", "secret")]


def test_a_place_beyond_its_piece_is_a_failure():
    looks = Engine("odd", "secret", lambda _: [(0, 5, "x")], piece_size=4)

    with pytest.raises(RedactionError, match="engine_failed at odd"):
        looks.spans("abcdefgh")


def test_redaction_of_a_document_has_a_time():
    with fail_closed():
        assert check_time() is None


@pytest.mark.parametrize(
    "text", ["", "abc", "ab cd\nef gh ij", "a" * 30, "\n" * 9, "1,2,3,4,5,6,7"]
)
def test_pieces_leave_nothing_out(text):
    parts = [*pieces(text, 8)]

    assert {i for place, piece in parts for i in range(place, place + len(piece))} == {
        *range(len(text))
    }
    assert all(text[place:].startswith(piece) for place, piece in parts)
    assert max(len(piece) for _, piece in parts) <= 8


def test_phone_numbers_have_a_time():
    pytest.importorskip("phonenumbers", reason="the extra phones is not installed")
    policy = Policy(phone_regions=("DE",))

    with (
        document(-1),
        pytest.raises(RedactionError, match=r"^timeout at phonenumbers \(9 chars\)$"),
    ):
        redact_text("not asked", level="aggregated", policy=policy)


def test_a_time_out_in_a_document_is_told_with_its_path():
    pytest.importorskip("phonenumbers", reason="the extra phones is not installed")
    policy, value = Policy(phone_regions=("DE",)), {"a": [1, {"b": "not asked before"}]}

    with document(-1), pytest.raises(RedactionError) as refusal:
        redact_jsonable(value, level="aggregated", policy=policy)

    assert str(refusal.value).startswith("timeout at {key} phonenumbers (")


@pytest.mark.parametrize("before", ["1 ", "1" * 30 + " ", "12,", "(0 ", "a1", "1/", "1 - "])
def test_a_phone_number_is_found_after_any_number_of_others(before):
    pytest.importorskip("phonenumbers", reason="the extra phones is not installed")
    looks, text = engine("phonenumbers", ("DE",)), before * 20_000 + ", tel 030 1234567"

    found = looks.spans(text)

    assert found[-1] == Span(len(text) - 11, len(text), "phone", "contact")


@pytest.mark.parametrize("before", ["a ", "1 ", ". ", "\u65e5", "/"], ids=ascii)
@pytest.mark.parametrize("shift", range(0, 16, 3))
def test_a_phone_number_where_a_text_is_cut_is_found(before, shift):
    pytest.importorskip("phonenumbers", reason="the extra phones is not installed")
    text = (before * 4096)[: 4096 - shift] + "\t+49 30 1234567, b"

    found = engine("phonenumbers", ("DE",)).spans(text)

    assert text[found[-1].start : found[-1].end] == "+49 30 1234567"
