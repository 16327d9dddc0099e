import numpy as np

from kp_middleware.embedding._recent_vectors import RecentVectors
from kp_middleware.testing import StandInEmbedder


def test_an_exact_repeat_is_not_embedded_again():
    embedder = StandInEmbedder()
    recent = RecentVectors(embedder.embed)

    first, repeat = recent.of("hello"), recent.of("hello")

    np.testing.assert_array_equal(first, repeat)
    assert embedder.asked == ["hello"]


def test_the_text_that_was_not_asked_for_longest_is_forgotten_first():
    embedder = StandInEmbedder()
    recent = RecentVectors(embedder.embed)

    for text in ("kept", "forgotten", *map(str, range(62)), "kept", "one more"):
        recent.of(text)
    recent.of("kept")
    recent.of("forgotten")

    assert embedder.asked[-2:] == ["one more", "forgotten"]


def test_a_failure_is_not_remembered():
    answers = iter([RuntimeError("once"), np.ones(2, np.float32)])

    def embed(_text):
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    recent = RecentVectors(embed)

    try:
        recent.of("hello")
    except RuntimeError:
        vector = recent.of("hello")

    np.testing.assert_array_equal(vector, [1, 1])
