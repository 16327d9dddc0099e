"""The cases that a recorder of LangChain must handle have numbers: each has a test by its own."""

import re
from pathlib import Path

CASES = range(1, 34)
FOLDERS = ("adapters/kp_langchain", "peers")


def test_every_case_has_a_test():
    tests = Path(__file__).parents[2]
    texts = [path.read_text() for name in FOLDERS for path in (tests / name).glob("test_*.py")]

    tested = {int(number) for text in texts for number in re.findall(r"def test_case_(\d+)_", text)}

    assert tested == {*CASES}
