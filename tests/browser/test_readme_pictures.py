"""The pictures of the README are made by what is in them."""

from xml.etree import ElementTree as ET

import pytest
from readme_pictures import draw, make_demo

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.mark.usefixtures("new_browser")
def test_all_are_made_and_small_and_the_terminal_shows_the_score(month, environment, tmp_path):
    demo = tmp_path / "demo.db"
    make_demo(demo)

    draw(month, demo, environment, tmp_path)

    for name in ("overview.png", "overview-dark.png", "run.png", "run-dark.png", "show.svg"):
        assert 5_000 < (tmp_path / name).stat().st_size < 200_000
    text = (tmp_path / "show.svg").read_text()
    words = "".join(ET.fromstring(text).itertext()).replace("\u00a0", " ")
    assert "outcome confidence" in words
    assert "reaches 0.75 by" in words
    assert "url(http" not in text  # it asks nobody
