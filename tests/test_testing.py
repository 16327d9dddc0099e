import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kp_middleware.export import OutboxItem, Receipt
from kp_middleware.testing import FakeClock, ListOutbox, Row, StandInEmbedder


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


def test_a_claimed_row_is_not_claimed_again_and_keeps_its_receipt():
    item, receipt = OutboxItem(1, b"{}", "k-1"), Receipt("kp:trace:1", 201)
    outbox = ListOutbox([Row(item, due_at=5.0)])

    claims = outbox.claim(4.0), outbox.claim(5.0), outbox.claim(5.0)
    outbox.sent(item, receipt)

    assert [claim and claim.trace_seq for claim in claims] == [None, 1, None]
    assert (outbox.rows[0].state, outbox.rows[0].news) == ("sent", receipt)
