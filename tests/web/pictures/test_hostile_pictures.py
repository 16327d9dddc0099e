"""Names come from agents and from the web: none may break a page."""

from xml.etree import ElementTree as ET

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kp_middleware.web.pictures import (
    AllTools,
    Bin,
    Curve,
    DomainBins,
    Markup,
    Removed,
    Spot,
    Stage,
    Term,
    ToolCalls,
    by_domain,
    element,
    escaped,
    funnel,
    joined,
    removals,
    shortened,
    tool_bars,
    trace_map,
    waterfall,
    what_if,
)
from kp_middleware.web.pictures._lettering import width

HOSTILE = (
    '</script><img src=x onerror="alert(1)">',
    "' onload='alert(1)",
    "]]>&amp;<!--",
    "\u202eright to left\u0627\u0644\u0639\u0631\u0628\u064a\u0629",
    "👩‍👩‍👧‍👦" * 40,
    "\x00\x1b[2J\ufffe\ud800",
    "x" * 10_000,
    "模型 " * 3000,
)
texts = st.one_of(
    st.sampled_from(HOSTILE), st.text(st.characters(exclude_characters="\r"), max_size=60)
)


def pictures(name):
    yield funnel([Stage(name, 5, "plain", name, name)])
    yield tool_bars([ToolCalls(name, 3, 1, 2.0, name)], AllTools(1, 3, 1))
    yield removals([Removed("2026-11-02", name, 3)], nothing="")
    yield by_domain([DomainBins(name, (Bin(0.5, 0.55, 3, 0),), "blue", name)], 0.75)
    yield waterfall([Term(name, name, 0.5)], 0.5, 0.75, is_cleared=False)
    yield what_if([Curve(name, "ink", (1,) * 101, 1, name)], 0.75)
    yield trace_map([Spot(n, n, name, name, "blue", True, name) for n in range(3)], kept=0.5)


@given(texts)
def test_any_name_gives_a_drawing_that_is_well_formed_and_has_only_its_own_marks(name):
    known = {"svg", "g", "a", "title", "text", "rect", "line", "path", "circle", "polyline"}

    drawn = [ET.fromstring(picture.svg) for picture in pictures(name)]

    assert len(drawn) == 7
    for mark in (mark for drawing in drawn for mark in drawing.iter()):
        assert mark.tag.rpartition("}")[2] in known
        assert not [attribute for attribute in mark.attrib if attribute.startswith("on")]


@given(texts)
def test_an_escaped_text_reads_as_it_was_but_for_what_xml_does_not_know(text):
    read = ET.fromstring(f'<a b="{escaped(text)}">{escaped(text)}</a>')

    assert (read.text or "").replace("\ufffd", "") == "".join(
        character for character in text if escaped(character) != "\ufffd"
    )
    assert len(read.text or "") == len(text)


@given(texts, st.floats(0, 400))
def test_a_shortened_text_fits_where_it_was_to_fit(text, room):
    assert width(shortened(text, room)) <= room or shortened(text, room) == "…"


@example("")
@given(texts)
def test_escaping_twice_is_escaping_once(text):
    assert escaped(escaped(text)) == escaped(text)


def test_markup_is_put_in_as_it_is_and_text_is_not():
    bold = element("b", "<i>")

    assert element("p", bold, "<i>", class_="x") == '<p class="x"><b>&lt;i&gt;</b>&lt;i&gt;</p>'
    assert joined(["<", Markup("<br/>")]) == "&lt;<br/>"


@pytest.mark.parametrize(
    ("text", "room", "shown"),
    [
        ("short", 100, "short"),
        ("many recoveries", 64, "many re…"),
        ("a\nb", 50, "a b"),
        ("a", 0, "…"),
    ],
)
def test_a_text_is_cut_where_it_has_no_room(text, room, shown):
    assert shortened(text, room) == shown
