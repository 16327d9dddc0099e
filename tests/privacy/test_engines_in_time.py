"""No engine holds a document up: it is stopped between two pieces, and then the row is blocked."""

import pytest

from kp_middleware.errors import RedactionError
from kp_middleware.privacy import ENGINE_TROUBLE, Policy, redact_jsonable, redact_text


@pytest.fixture
def shown(phones, clock, monkeypatch):
    """What an engine was shown that takes 25 of a document's 60 seconds for each piece."""
    texts = []

    def look(text):
        texts.append(text)
        clock.advance(25)
        return []

    monkeypatch.setattr("time.monotonic", clock)
    phones("slow", look)
    return texts


def refusal(redact, value):
    """Why the slow engine's time was over."""
    with pytest.raises(RedactionError) as raised:
        redact(value, level="aggregated", policy=Policy(engines=("phonenumbers:slow",)))
    return str(raised.value)


def test_an_engine_is_stopped_between_two_pieces_when_the_time_of_its_document_is_over(shown):
    for number in range(9):
        cleaned(f"the {number}", "phonenumbers:slow")
    assert len(shown) == 9

    assert refusal(redact_text, "a " * 10_000) == "timeout at phonenumbers:slow (20000 chars)"
    assert len(shown) == 12

    values = ["the one", "the two", "the three", "the four"]
    assert refusal(redact_jsonable, values) == "timeout at [3] phonenumbers:slow (8 chars)"
    assert "timeout" in ENGINE_TROUBLE


def cleaned(text, *engines, regions=()):
    policy = Policy(engines=engines, phone_regions=regions)
    return redact_text(text, level="aggregated", policy=policy).text


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
    assert cleaned(text, regions=("SG",)).endswith("\t[REDACTED:phone], b")
