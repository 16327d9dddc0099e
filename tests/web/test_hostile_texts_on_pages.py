"""Names come from agents and from the web: none may break a page."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st
from page_reading import card, parsed

from kp_middleware.storage import (
    Funnel,
    MapPoint,
    Overview,
    Removal,
    RunSummary,
    ScoreSlices,
    Slice,
    ToolUse,
)
from kp_middleware.web.pages import overview_html

HOSTILE = (
    '</script><img src=x onerror="alert(1)">',
    "' onload='alert(1)",
    "]]>&amp;<!--",
    "{{ 7777 * 7777 }}{% include 'style.css' %}",
    "\u202eright to left\u0627\u0644\u0639\u0631\u0628\u064a\u0629",
    "👩‍👩‍👧‍👦" * 40,
    "\x00\x1b[2J\ufffe\ud800",
    "x" * 10_000,
    "模型 " * 3000,
)
RUN = RunSummary(
    *("1", "2026-01-01", "code", None, None),
    *(True, 1, 0, None),
    *("sent", None, None, "x"),
)
texts = st.one_of(
    st.sampled_from(HOSTILE), st.text(st.characters(exclude_characters="\r"), max_size=60)
)
VECTOR = b"\x00\x00\x80?" + b"\x00" * 12


class HostileLinks:
    """All lead to what the text says."""

    def __init__(self, text):
        self.text = text

    def __getattr__(self, _):
        return lambda *_, **__: self.text


def overview(name):
    run = RUN._replace(id=name, objective=name, score=0.8, margin=0.05)
    return Overview(
        ScoreSlices(0.75, (Slice(name, 80, 3, 3), Slice("code", 10, 3, 0))),
        Funnel(5, 1, 1, 0, 0, 1, 0, {name: 1}),
        tools=(ToolUse(name, 3, 1, 2.0),),
        missed=(run,),
        points=tuple(MapPoint(n, name, name, name, 0.5, True, VECTOR) for n in range(3)),
        removals=(Removal("2026-11-02", name, 3),),
    )


def tags(page):
    return {mark.tag.rpartition("}")[2] for mark in page.iter()}


TAGS = tags(parsed(overview_html(overview("harmless"), HostileLinks("/"))))


@settings(max_examples=50)
@given(texts)
def test_any_name_gives_a_page_that_is_well_formed_and_has_only_its_own_marks(name):
    page = parsed(overview_html(overview(name), HostileLinks(name)))

    assert tags(page) <= TAGS
    assert not [one for mark in page.iter() for one in mark.attrib if one.startswith("on")]


@settings(max_examples=50)
@given(texts)
def test_a_text_reads_as_it_was_but_for_what_would_harm_the_page(text):
    newest = [RUN._replace(objective=f"x{text}"[:100].replace(" ", "_"))]
    page = overview_html(overview("harmless"), HostileLinks("/"), newest=newest)

    read = card(page, "Last runs").find("table/tbody/tr/td/a/bdi").text
    text = " ".join(newest[0].objective.split())
    assert len(read) == len(text)
    assert all(one in {other, "\ufffd"} for one, other in zip(read, text, strict=True))


def test_no_page_is_made_of_what_a_text_says_to_the_template():
    page = overview_html(overview(json.dumps(HOSTILE[3])), HostileLinks("/"))

    assert "60481729" not in page
    assert "{{ 7777 * 7777 }}" in page
