import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kp_middleware.testing import FakeClock, StandInEmbedder


def test_time_stands_still_until_told():
    clock = FakeClock(1000.0)
    before = clock()

    clock.advance(3600.0)

    assert (before, clock(), clock.ms()) == (1000.0, 4600.0, 4_600_000)


@given(st.text(st.characters(exclude_categories=())))
def test_any_text_has_a_vector_of_length_one_and_always_the_same(text):
    embedder = StandInEmbedder()

    vector = embedder.embed(text)

    assert (vector.dtype, vector.shape) == (np.float32, (384,))
    assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-6)
    np.testing.assert_array_equal(vector, StandInEmbedder().embed(text))
    assert embedder.asked == [text]


def test_texts_that_share_words_are_near():
    embed = StandInEmbedder().embed

    near = embed("Sort a list of names") @ embed("sort a LIST of dates!")
    far = embed("Sort a list of names") @ embed("Wie wird das Wetter?")

    assert near > 0.7
    assert far < 0.3
