"""The pictures in the docs show the score as it is."""

import pytest
import score_pictures


@pytest.mark.parametrize("picture", score_pictures.PICTURES, ids=lambda picture: picture.__name__)
def test_a_picture_in_the_docs_is_what_the_scorer_says(picture, repository):
    kept = repository / "docs" / "pictures" / f"{picture.__name__}.svg"

    assert kept.read_text("utf-8") == f"{picture()}\n", "run tests/docs/score_pictures.py"
