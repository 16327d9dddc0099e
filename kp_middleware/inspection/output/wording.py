"""Texts as they may be printed, counts and ids as people read them."""

from collections.abc import Mapping

_JOINERS = "\u200c\u200d"
"""Many languages and emoji are not written without them."""


def one_line(text: str) -> str:
    r"""A text as it may be put on a terminal: on one line, with nothing that steers it.

    >>> one_line("first\n\x1b[2Jsecond")
    'first ?[2Jsecond'
    """
    return printable(" ".join(text.split()))


def printable(line: str) -> str:
    """A line with nothing in it that steers a terminal."""
    return "".join(sign if sign.isprintable() or sign in _JOINERS else "?" for sign in line)


def in_words(counts: Mapping[str, int]) -> str:
    """How much of what, the most first.

    >>> in_words({"email": 2, "api_key": 1, "phone": 0})
    '2 email, 1 api_key'
    """
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count:,} {name}" for name, count in ordered if count)


def short_id(trace_id: str) -> str:
    """As much of an id as a person reads.

    >>> short_id("kp:trace:1339c01f-d20b-469c-90a1-9b4f1b03419e")
    '1339c01f'
    """
    return trace_id.removeprefix("kp:trace:")[:8]
