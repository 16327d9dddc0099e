import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

WINDOW = 256
HARD_TO_CUT = [
    "hello ",
    "antidisestablishmentarianism",
    "[MASK]",
    "[SEP] ",
    "x" * 99,
    "y" * 150,
    " " * 40,
    "\0" * 40,
    "漢字",
    "한국어",
    "e\N{COMBINING ACUTE ACCENT}",
    "a" + "\N{COMBINING TILDE}" * 60,
    "\N{LATIN CAPITAL LETTER I WITH DOT ABOVE}ß",
    "🙂",
    "\N{ZERO WIDTH SPACE}" * 20,
    "...",
]


@st.composite
def long_texts(draw):
    parts = draw(st.lists(st.sampled_from(HARD_TO_CUT) | st.text(max_size=20), min_size=1))
    text = "".join(parts) * draw(st.integers(1, 400))
    return text[draw(st.integers(0, 40)) :]


@given(long_texts())
@settings(deadline=None)
def test_the_beginning_of_a_text_has_the_tokens_of_the_whole(window, tokenizer, text):
    whole = tokenizer.encode(text)

    assert tokenizer.encode(window.beginning(text)).ids == whole.ids
    assert window.holds(text) == (not whole.overflowing)


def test_a_long_text_is_not_tokenised_to_its_end(window):
    text = "to be or not to be " * 100_000

    part = window.beginning(text)

    assert len(part) == 6 * WINDOW


@pytest.mark.parametrize(
    ("words", "held"), [(254, True), (255, False)], ids=["just full", "one too many"]
)
def test_the_window_holds_254_words_and_the_frame(window, words, held):
    text = " ".join(["a"] * words)

    assert window.holds(text) == held


@pytest.mark.parametrize("text", ["one two three four five six seven", "one two seven"])
def test_the_ends_of_a_text_are_its_first_and_last_tokens(window, text):
    assert window.shorten(text, 2, 1) == ("one two seven", 3)


@given(long_texts(), st.integers(1, 64), st.integers(1, 64))
@settings(deadline=None)
def test_ends_are_bounded_in_tokens_and_in_characters(window, text, first, last):
    ends, tokens = window.shorten(text, first, last)

    assert tokens <= first + last
    assert len(ends) <= 8 * (first + last) + 3  # a character of several tokens may be at both ends
