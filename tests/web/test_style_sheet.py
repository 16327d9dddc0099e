"""Colors that can be read: WCAG's formula on the sheet itself."""

import re
from importlib.resources import files

import pytest

from kp_middleware.web.marks import COLOURS

SHEET = files("kp_middleware").joinpath("web", "templates", "style.css").read_text("utf-8")
VARIABLE = re.compile(r"--kp-(\w+): light-dark\(#([0-9a-f]{6}), #([0-9a-f]{6})\)")


def colours(*, dark):
    sheet = SHEET.split("@media (prefers-contrast: more)")[0]
    return {name: pair[dark] for name, *pair in VARIABLE.findall(sheet)}


def luminance(colour):
    parts = [int(colour[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one, other):
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("ground", ["paper", "card", "track"])
def test_every_text_can_be_read(dark, ground):
    found = colours(dark=dark)

    contrasts = {
        text: contrast(found[text], found[ground]) for text in ("ink", "quiet", "anchor", "loss")
    }

    assert [text for text, value in contrasts.items() if value < 4.5] == []


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_mark_and_the_edge_of_a_field_can_be_seen(dark):
    found = colours(dark=dark)
    marks = [*COLOURS, "grey", "below", "cleared", "plain", "loss"]

    pale = [mark for mark in marks if contrast(found[mark], found["card"]) < 3]

    assert pale == []
    assert contrast(found["plain"], found["paper"]) >= 3


def test_every_colour_is_one_of_light_and_one_of_dark():
    plain = re.findall(r"--kp-\w+: #", SHEET)

    assert len(colours(dark=True)) > 15
    assert not plain


def test_no_two_lines_differ_by_colour_alone():
    dashes = dict(re.findall(r"kp-dash-(\d) { stroke-dasharray: ([0-9 ]+);", SHEET))

    assert [*dashes] == ["1", "2", "3", "4", "5", "6"]  # the first is solid
    assert len({*dashes.values()}) == 6
    assert max(sum(map(int, dash.split())) for dash in dashes.values()) < 28  # of a legend


def test_no_spot_of_a_map_is_paler_than_its_colour():
    faded = re.findall(r"([^{}]*){[^{}]*opacity", SHEET)

    assert not [name for name in faded if "spot" in name]


def test_the_sheet_fetches_nothing():
    assert not re.search(r"url\(|@import|https?:", SHEET)
