import threading
from itertools import count, islice

import numpy as np
import pytest

from kp_middleware.embedding import MiniLMEmbedder, embed_many
from kp_middleware.errors import EmbedderUnavailableError
from kp_middleware.testing import StandInEmbedder


class Counted:
    """Texts without end; how many were read is known."""

    def __init__(self):
        self.read = 0

    def __iter__(self):
        for self.read in count(1):
            yield f"text {self.read}"


class ThreadNoting(StandInEmbedder):
    """Remembers the threads that asked."""

    def __init__(self):
        super().__init__()
        self.threads = set()

    def embed(self, text, /):
        self.threads.add(threading.current_thread())
        return super().embed(text)


def test_vectors_come_in_the_order_of_their_texts(tiny):
    texts = [f"{'word ' * (number % 7 * 30)}{number}" for number in range(100)]

    vectors = [*embed_many(texts, tiny)]

    np.testing.assert_array_equal(vectors, [tiny.embed(text) for text in texts])


def test_texts_are_read_as_vectors_are_taken(tiny):
    texts = Counted()

    taken = [*islice(embed_many(texts, tiny), 20)]

    assert len(taken) == 20
    assert texts.read <= 20 + 8


def test_texts_are_read_in_the_thread_that_asks(tiny):
    readers = set()

    def texts():
        for number in range(20):
            readers.add(threading.current_thread())
            yield str(number)

    vectors = [*embed_many(texts(), tiny)]

    assert len(vectors) == 20
    assert readers == {threading.current_thread()}


def test_an_embedder_of_another_kind_is_asked_in_the_callers_thread():
    embedder = ThreadNoting()

    vectors = [*embed_many(["one", "two"], embedder)]

    np.testing.assert_array_equal(vectors, [embedder.embed("one"), embedder.embed("two")])
    assert embedder.threads == {threading.current_thread()}


def test_no_texts_are_no_vectors_and_load_nothing(monkeypatch, tmp_path):
    monkeypatch.setenv("KP_MODEL_PATH", str(tmp_path))

    vectors = [*embed_many([], MiniLMEmbedder())]

    assert vectors == []


def test_without_a_model_the_caller_hears_of_it(monkeypatch, tmp_path):
    monkeypatch.setenv("KP_MODEL_PATH", str(tmp_path))
    texts = Counted()

    with pytest.raises(EmbedderUnavailableError, match="which has no"):
        next(embed_many(texts, MiniLMEmbedder()))

    assert texts.read <= 9


def test_no_thread_is_left_behind_by_who_stops_early(tiny):
    vectors = embed_many(Counted(), tiny)
    next(vectors)

    vectors.close()

    names = [thread.name for thread in threading.enumerate()]
    assert not [name for name in names if name.startswith("kp-embedding")]
