"""What stands before the words that recording leaves where it cut a text.

A secret that lies across the cut has lost its end, and no rule would know it. So the unbroken run
of characters before the cut always goes, and with it the groups of a number.
"""

import re
from collections.abc import Iterator
from string import ascii_letters, digits

from kp_middleware.privacy._page import Page
from kp_middleware.privacy._rules import Span

REACH = 4096
"""How many characters before a cut are looked at, at the most."""

_MARK = re.compile(r"…? ?\[cut: \d{1,12} characters in all\]")
_UNBROKEN = ascii_letters + digits + "!#$%&()*+,-./:;=?@[\\]^_{|}~"
_GROUPS = re.compile(r"(?:(?=[A-Za-z_+().-]{0,8}\d)[\w+().-]{1,17}+[ \u00a0]){1,10}+\Z", re.ASCII)
_LONGEST_GROUPS = 180
_CLOSED_BY = (
    *(('"', '"'), ("'", "'"), ("`", "`"), ('\\"', '\\"'), (">", "</")),
    (" ", "aa aa aa"),  # a phrase needs several words
)


def spans_at_cuts(page: Page) -> Iterator[Span]:
    """What goes because the text was cut after it."""
    if "[cut: " not in page.text:
        return
    for mark in _MARK.finditer(page.text):
        size = _size_of_torn(page.text[max(0, mark.start() - REACH) : mark.start()])
        if size:
            yield Span(mark.start() - size, mark.start(), "cut", "secret")


def readings_of_cut(text: str) -> Iterator[tuple[int, str, str]]:
    """Other ways to read a text that ends in a cut: as if what was open had been closed there.

    Each as its place in the text, what is there, and what closes it.
    """
    for mark in _MARK.finditer(text, max(0, len(text) - 48)):
        start = max(0, mark.start() - REACH)
        before = text[start : mark.start()]
        for opening, closing in _CLOSED_BY:
            if opening in before:
                yield start, before, closing


def _size_of_torn(before: str) -> int:
    """How many characters of what is before a cut are torn."""
    whole = before.rstrip(_UNBROKEN)
    groups = _GROUPS.search(whole[-_LONGEST_GROUPS:])
    return len(before) - len(whole) + (len(groups[0]) if groups else 0)
