"""What stands below a key that names a secret, in JSON that is a part of a text or not quite JSON.

What is JSON as a whole is walked. This is for the rest: a line of a log before it, a document on
each line, a cut, ``NaN``, a key twice, a Python ``repr``.
"""

import re
from collections.abc import Callable, Iterator

from kp_middleware.privacy._page import Page
from kp_middleware.privacy._rules import Span
from kp_middleware.privacy._values import is_counter, is_of_account, is_usual

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
_ENDS_BARE = re.compile(r"\s{0,64}(?:[,:=\]})]|\Z)")
_ENDS_KEY = re.compile(r"\s{0,16}(?::|=>)")


def spans_below_keys(page: Page, blanks: Callable[[str], str]) -> Iterator[Span]:
    """All values below keys for which ``blanks`` gives a label; what is seen to be none stays."""
    text, reached = page.text, 0
    for opening in _OPENS.finditer(text):
        if opening.start() < reached:
            continue
        key = _KEY_BEFORE.search(text[max(0, opening.start() - _KEY_SIZE) : opening.start()])
        name = key[1] if key else ""
        label = blanks(name) if name else ""
        if label:
            values = _Values(text, opening.end(), accounts="cred" in name.lower())
            reached = values.end
            yield from (Span(start, end, label, "secret") for start, end in values.places)


class _Values:
    """What stands in brackets.

    Attributes:
        places: Its values, without keys.
        end: Where the bracket is closed, or where it is no JSON any more.
    """

    def __init__(self, text: str, start: int, *, accounts: bool) -> None:
        self._accounts = accounts
        self.places: list[tuple[int, int]] = []
        self.end = len(text)
        self._depth = 0
        self._after_value = False
        self._name = ""
        for token in _TOKEN.finditer(text, start):
            if not self._goes_on(token):
                self.end = token.end()
                return

    def _goes_on(self, token: re.Match[str]) -> bool:
        kind = token.lastgroup
        if kind == "joint":
            self._after_value = False
        elif kind == "close":
            self._depth, self._after_value = self._depth - 1, True
        elif kind == "open":
            self._depth += 1
            return not self._after_value
        elif kind is not None:
            return self._value(token, kind)
        return self._depth > 0

    def _value(self, token: re.Match[str], kind: str) -> bool:
        if self._after_value or (
            kind == "bare" and not _ENDS_BARE.match(token.string, token.end())
        ):
            return False
        if _ENDS_KEY.match(token.string, token.end()):
            self._name = token[kind]
            return True
        self._after_value = True
        if not self._may_stay(token[kind]):
            self.places.append(token.span(kind))
        return True

    def _may_stay(self, value: str) -> bool:
        if is_usual(value) or (self._accounts and is_of_account(self._name, value)):
            return True
        return value.replace(".", "").isdecimal() and (len(value) < 4 or is_counter(self._name))
