"""What a page says of our own code, beside that of others, is as our code is."""

import re

import pages
import pytest
from house import measured

PAGE = (pages.ROOT / "docs/decisions/beside-our-models.md").read_text("utf-8")
TOLD = dict(re.findall(r"(?m)^\| ([^|]+?) \| \**([\d.,]+)\** \|", PAGE))


@pytest.fixture(scope="module")
def house():
    packages = [pages.ROOT / "kp_middleware", pages.ROOT / "adapters/kp_langchain"]
    return measured(packages, pages.ROOT / "tests")


def test_every_row_is_measured(house):
    assert TOLD.keys() == house.keys()


@pytest.mark.parametrize("row", TOLD)
def test_a_row_is_true_as_long_as_the_code_is_about_as_large(house, row):
    told = float(TOLD[row].replace(",", ""))

    assert house[row] == pytest.approx(told, rel=0.2, abs=0.2), "measure it anew with house.py"


def test_nothing_of_ours_is_in_a_circle_of_imports(house):
    assert house["modules in circles of imports, when they run"] == 0
