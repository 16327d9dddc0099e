"""What stands below a key that names a secret, in JSON that is a part of a text or not quite JSON.

What is JSON as a whole is walked. This is for the rest: a line of a log before it, a document on
each line, a cut, ``NaN``, a key twice, a Python ``repr``.
"""

import re
from collections.abc import Callable, Iterator

from kp_middleware.privacy._page import Page
from kp_middleware.privacy._rules import Span
from kp_middleware.privacy._values import is_counter, is_usual

_OPENS = re.compile(r"(?::|=>)\s{0,16}(?=[\[{(])")
_KEY_BEFORE = re.compile(r"""["']([^"'\\\n]{2,120})\\{0,7}["']\s{0,16}\Z""")
_KEY_SIZE = 160
_TOKEN = re.compile(
    r"""
    (?P<open>[\[{(]) | (?P<close>[\]})]) | (?P<joint>,|:|=>) | \s+
    | "(?P<double>(?:[^"\\]|\\.)*+)(?:"|\Z)
    | '(?P<single>(?:[^'\\]|\\.)*+)(?:'|\Z)
    | \\{1,7}(?P<mark>["'])(?P<escaped>[^"'\\]*+)(?:\\{1,7}(?P=mark)|\Z)?
    | (?P<bare>[^\s\[\]{}(),:"'\\]+) | .
    """,
    re.VERBOSE | re.DOTALL,
)
_ENDS_KEY = re.compile(r"\s{0,16}(?::|=>)")
_VALUES = frozenset(("double", "single", "escaped", "bare"))


def spans_below_keys(page: Page, blanks: Callable[[str], str]) -> Iterator[Span]:
    """All values below keys for which ``blanks`` gives a label; what can be seen to be none stays."""
    text, reached = page.text, 0
    for opening in _OPENS.finditer(text):
        if opening.start() < reached:
            continue
        key = _KEY_BEFORE.search(text[max(0, opening.start() - _KEY_SIZE) : opening.start()])
        label = blanks(key[1]) if key else ""
        if label:
            for start, end in _values(text, opening.end()):
                yield Span(start, end, label, "secret")
                reached = end


def _values(text: str, start: int) -> Iterator[tuple[int, int]]:
    """Up to the bracket that closes the first, or to where this is no JSON any more."""
    depth, after_value, name = 0, False, ""
    for token in _TOKEN.finditer(text, start):
        kind = token.lastgroup
        if kind == "joint":
            after_value = False
        elif kind == "close":
            depth, after_value = depth - 1, True
            if depth == 0:
                return
        elif kind == "open" or kind in _VALUES:
            if after_value:
                return
            depth += kind == "open"
            is_key = _ENDS_KEY.match(text, token.end())
            after_value = kind != "open" and not is_key
            if is_key:
                name = token[kind]
            elif after_value and not _may_stay(token[kind], name):
                yield token.span(kind)


def _may_stay(value: str, name: str) -> bool:
    return is_usual(value) or (value.replace(".", "").isdecimal() and is_counter(name))
