"""Parsing of our HTML pages."""

from urllib.parse import urlencode
from xml.etree import ElementTree as ET

SVG = "{http://www.w3.org/2000/svg}"


def parsed(html):
    """The page or fragment, which must be well-formed as XML, too."""
    return ET.fromstring(html.removeprefix("<!DOCTYPE html>\n"))


def text_of(html):
    return " ".join("".join(parsed(html).itertext()).split())


def hrefs(html):
    return [link.get("href") for tag in ("a", f"{SVG}a") for link in parsed(html).iter(tag)]


def titles_of_cards(html):
    return [head.text for head in parsed(html).iter("h2")]


def card(html, title):
    """The frame with this title."""
    frames = [*parsed(html).iter("figure"), *parsed(html).iter("section")]
    return next(
        frame for frame in frames if frame.find("h2") is not None and frame.find("h2").text == title
    )


def groups(chart):
    """The marks that say what they are when pointed at."""
    return [mark for mark in chart.marks if mark.title]


def places(line):
    """The points of a line or a band."""
    return [tuple(map(float, one.split(","))) for one in line.attributes["points"].split()]


class EchoLinks:
    """Links that say what they were asked."""

    def trace(self, trace_id):
        return f"/trace/{trace_id}"

    def runs(self, **filters):
        return f"/runs?{urlencode(filters)}"


class NoLinks:
    """All lead nowhere."""

    def __getattr__(self, _):
        return lambda *_, **__: None
