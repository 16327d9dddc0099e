"""Markup that cannot be broken by what it holds: every text is escaped where it is put in."""

import re
from collections.abc import Iterable
from typing import Final

_HARMFUL: Final = re.compile(
    "[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"  # what XML does not know
    "|[\u202a-\u202e\u2066-\u2069]"  # what would turn the words around it
)
_ESCAPES: Final = str.maketrans(
    {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"}
)
_SPECIAL: Final = re.compile("[&<>\"']|" + _HARMFUL.pattern)
_VOID: Final = frozenset({"br", "col", "input", "link", "meta"})


class Markup(str):
    """Text that is HTML or SVG already; any other text is escaped where it is put in."""

    __slots__ = ()


def escaped(text: str) -> Markup:
    r"""A text as it may stand in HTML, in SVG and in quotes, without what could harm the page.

    >>> escaped("</script>\x00")
    '&lt;/script&gt;�'
    """
    if isinstance(text, Markup):
        return text
    if not _SPECIAL.search(text):
        return Markup(text)
    return Markup(_HARMFUL.sub("�", text).translate(_ESCAPES))


def joined(parts: Iterable[str]) -> Markup:
    """One after another, each escaped unless it is markup."""
    return Markup("".join(map(escaped, parts)))


def element(tag: str, /, *children: str, **attributes: str | float | None) -> Markup:
    """One element, well-formed as XML, too.

    Args:
        tag: Its name.
        children: What is in it.
        attributes: By name: ``class_`` is class, ``text_anchor`` is text-anchor. None leaves it
            out; numbers have at most two decimals.

    >>> element("text", "a < b", x=1.2345, class_="kp-ink", href=None)
    '<text x="1.23" class="kp-ink">a &lt; b</text>'
    """
    written = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{_value(value)}"'
        for name, value in attributes.items()
        if value is not None
    )
    if tag in _VOID:
        return Markup(f"<{tag}{written}/>")
    return Markup(f"<{tag}{written}>{joined(children)}</{tag}>")


def _value(value: str | float) -> str:
    return escaped(value) if isinstance(value, str) else f"{round(value, 2):g}"
