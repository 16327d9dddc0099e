import pytest
from hypothesis import given
from hypothesis import strategies as st

from kp_middleware.recording import bounded_text


@given(st.text(st.characters(exclude_categories=())), st.integers(0, 40))
def test_a_bounded_text_can_be_written_and_says_if_it_was_cut(text, limit):
    kept = bounded_text(text, limit)

    words = f"… [cut: {len(text)} characters in all]"
    assert len(kept.removesuffix(words).encode()) <= limit
    assert "\0" not in kept
    assert kept.endswith(words) or len(kept) == len(text)


@pytest.mark.parametrize(
    ("text", "limit", "kept"),
    [
        ("abc", 3, "abc"),
        ("abcd", 3, "abc… [cut: 4 characters in all]"),
        ("日本", 6, "日本"),
        ("日本", 5, "日… [cut: 2 characters in all]"),
        ("日本", 2, "… [cut: 2 characters in all]"),
        ("", 0, ""),
        ("\ud83d\ude00", 6, "\ufffd\ufffd"),
    ],
    ids=["fits", "too long", "fits in bytes", "half a character", "no character", "empty", "pair"],
)
def test_a_text_is_cut_between_characters(text, limit, kept):
    assert bounded_text(text, limit) == kept
