import threading
from itertools import count, islice

import numpy as np
import pytest

from kp_middleware.embedding import MiniLMEmbedder, embed_many
from kp_middleware.errors import EmbedderUnavailableError
from kp_middleware.testing import StandInEmbedder


class Texts:
    """Texts without end; how many were read, and in which threads, is known."""

    def __init__(self):
        self.read, self.readers = 0, set()

    def __iter__(self):
        for self.read in count(1):
            self.readers.add(threading.current_thread())
            yield f"text {self.read}"


def test_vectors_come_in_the_order_of_their_texts(tiny):
    texts = [f"{'word ' * (number % 7 * 30)}{number}" for number in range(100)]

    vectors = [*embed_many(tiny.embed, texts, tiny)]

    np.testing.assert_array_equal(vectors, [tiny.embed(text) for text in texts])


def test_texts_are_read_as_vectors_are_taken_and_who_stops_early_leaves_no_thread(tiny):
    texts = Texts()
    vectors = embed_many(tiny.embed, texts, tiny)

    taken = [*islice(vectors, 20)]
    vectors.close()

    assert len(taken) == 20
    assert texts.read <= 20 + 8
    assert texts.readers == {threading.current_thread()}
    names = [thread.name for thread in threading.enumerate()]
    assert not [name for name in names if name.startswith("kp-embedding")]


def test_an_embedder_of_another_kind_is_asked_in_the_callers_thread_for_what_is_taken():
    embedder = StandInEmbedder()

    vector = next(embed_many(embedder.embed, Texts(), embedder))

    assert embedder.asked == ["text 1"]
    np.testing.assert_array_equal(vector, embedder.embed("text 1"))


def test_without_a_model_the_caller_hears_of_it_at_the_first_text(monkeypatch, tmp_path):
    monkeypatch.setenv("KP_MODEL_PATH", str(tmp_path))
    texts, embedder = Texts(), MiniLMEmbedder()

    assert [*embed_many(embedder.embed, [], embedder)] == []
    with pytest.raises(EmbedderUnavailableError, match="which has no"):
        next(embed_many(embedder.embed, texts, embedder))
    assert texts.read <= 9
