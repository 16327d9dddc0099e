"""Secrets below a secret's key, in JSON within a text or in malformed JSON.

Valid JSON is walked instead. This covers the rest: JSON after a log prefix, JSON lines, truncated
JSON, ``NaN``, duplicate keys, a Python ``repr``.
"""

import base64
import re
from bisect import bisect_right
from codecs import utf_8_decode, utf_16_le_decode
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import accumulate
from string import ascii_letters, digits

from kp_middleware.privacy._escapes import HIDDEN
from kp_middleware.privacy._indexed_text import IndexedText
from kp_middleware.privacy._names import is_counter, is_of_account
from kp_middleware.privacy._rules import Span
from kp_middleware.privacy._values import (
    describes,
    is_plain,
    is_stand_in,
    is_strong,
    is_usual,
    is_usual_word,
)

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
JSON_TYPES = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})
DESCRIBING = frozenset({"$ref", "description", "format", "required", "title", "type"})
"""What a JSON Schema says of a value: it is not the value."""

_ENDS_BARE = re.compile(r"\s{0,64}(?:[,:=\]})]|\Z)")
_ENDS_KEY = re.compile(r"\s{0,16}(?::|=>)")


def spans_below_keys(indexed: IndexedText, blanks: Callable[[str], str]) -> Iterator[Span]:
    """Yield the values in brackets after keys for which ``blanks`` returns a label."""
    text, reached = indexed.text, 0
    label_of = cache(blanks)
    for opening in _OPENS.finditer(text):
        if opening.start() < reached:
            continue
        key = _KEY_BEFORE.search(text[max(0, opening.start() - _KEY_SIZE) : opening.start()])
        if key and (label := label_of(key[1])):
            values = _Values(text, opening.end(), accounts="cred" in key[1].lower())
            reached = values.end
            yield from (Span(start, end, label, "secret") for start, end in values.places)


class _Values:
    """The values inside brackets, up to where these are closed, or to what is no JSON."""

    def __init__(self, text: str, start: int, *, accounts: bool) -> None:
        self._accounts = accounts
        self.places: list[tuple[int, int]] = []
        self.end = len(text)
        self._depth = 0
        self._after_value = False
        self._name = ""
        self._is_schema = False
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
        self._is_schema |= self._name == "type" and token[kind] in JSON_TYPES
        if self._is_schema and self._name in DESCRIBING:
            return True
        if not self._may_stay(token[kind]):
            self.places.append(token.span(kind))
        return True

    def _may_stay(self, value: str) -> bool:
        if is_usual(value) or describes(value):
            return True
        if self._accounts and is_of_account(self._name, value):
            return True
        return value.replace(".", "").isdecimal() and (len(value) < 4 or is_counter(self._name))


_RULED = re.compile(r"(?m)^(?P<heading>[^\n]{0,80}\|[^\n]{0,400})\n[ \t|:+=-]*-[ \t|:+=-]*\r?$")
_OF_FIELD = r"(?m)^(?:[^\n:]{1,64}: )?"  # the name of the field that a table is in
_LISTED = re.compile(
    _OF_FIELD + r"(?P<heading>[\w\"][\w .\"-]{0,60}(?P<sign>[,;\t])[\w .,;\t\"-]{1,400})\r?$",
    re.ASCII,
)
_ALIGNED = re.compile(
    _OF_FIELD + r"(?P<heading>[\w.-]{1,60}(?: {2,60}[\w.-]{1,60}){1,20}) {0,60}\r?$", re.ASCII
)
_NAMES = ("pass", "pw", "secret", "token", "key", "cred")
_INSERT = re.compile(
    r"(?i:insert|replace)\s{1,4}(?:(?i:ignore)\s{1,4})?(?i:into)\s{1,4}[\w.`\"\[\]]{1,120}\s{0,4}"
    r"\((?P<names>[^()]{1,1000})\)\s{0,8}(?i:values)\s{0,8}"
)
_ROW = re.compile(
    r"\s{0,8},?\s{0,8}\((?P<cells>(?:'(?:[^'\\]|''|\\.){0,512}+'|\"[^\"]{0,512}\"|[^()'\"]){0,4000}+)\)"
)
_CELL = re.compile(
    r"\s*(?:[NE]?'(?P<single>(?:[^'\\]|''|\\.)*+)'|\"(?P<double>[^\"]*+)\"|(?P<bare>[^,]*+))\s*(?:,|\Z)"
)
_RULE = re.compile(r"[\s|:+=-]+")
_NAME = re.compile(r"[\w .-]{1,60}")
_ALIGNED_CELL = re.compile(r"\S+(?: \S+)*")
_MAX_ROWS = 1000


def spans_in_columns(indexed: IndexedText, blanks: Callable[[str], str]) -> Iterator[Span]:
    """Yield the cells of columns for which ``blanks`` returns a label, except words."""
    if not any(name in indexed.lowered for name in _NAMES):
        return
    text = indexed.text

    def label_of(name: str) -> str:
        return blanks(name) if _NAME.fullmatch(name) else ""

    if "|" in text and "--" in text:
        yield from _below_headings(text, _RULED, "|", label_of)
    if "," in text or ";" in text or "\t" in text:
        yield from _below_headings(text, _LISTED, "", label_of)
    if "  " in text:
        yield from _below_headings(text, _ALIGNED, "  ", label_of)
    if "insert" in indexed.lowered or "replace" in indexed.lowered:
        yield from _inserted(text, label_of)


def _below_headings(
    text: str, pattern: re.Pattern[str], divider: str, label_of: Callable[[str], str]
) -> Iterator[Span]:
    reached = 0
    for heading in pattern.finditer(text):
        told = heading["heading"]
        if heading.start() < reached or not any(name in told.lower() for name in _NAMES):
            continue
        sign = divider or heading["sign"]
        labels = [label_of(cell.strip(" *`\"'")) for _, cell in _cells(told, sign)]
        if any(labels):
            first = text.find("\n", heading.end("heading")) + 1 or len(text)
            found, reached = _in_rows(text, first, sign, labels)
            yield from found


def _cells(line: str, sign: str) -> Iterator[tuple[int, str]]:
    """Yield where each cell begins, and what is in it; two blanks stand for any number."""
    if sign == "  ":
        yield from ((cell.start(), cell[0]) for cell in _ALIGNED_CELL.finditer(line))
        return
    start = 0
    for cell in line.split(sign):
        yield start, cell
        start += len(cell) + 1


def _in_rows(text: str, start: int, sign: str, labels: list[str]) -> tuple[list[Span], int]:
    """Return the findings in the rows below a heading, and where these rows end."""
    found: list[Span] = []
    for _ in range(_MAX_ROWS):
        end = text.find("\n", start)
        line = text[start : end if end >= 0 else len(text)]
        if not line or len(line) > 4000 or start > len(text):
            break
        if not _RULE.fullmatch(line):
            cells = [*_cells(line, sign)]
            if len(cells) != len(labels):
                break
            for label, (begin, cell) in zip(labels, cells, strict=True):
                value = cell.strip(" \t\r*`\"'")
                doubtful = sign == "  " and not is_strong(value)  # prose may be aligned
                if label and not doubtful and not _may_stay(value):
                    place = start + begin + cell.index(value)
                    found.append(Span(place, place + len(value), label, "secret"))
        start += len(line) + 1
    return found, start


def _inserted(text: str, label_of: Callable[[str], str]) -> Iterator[Span]:
    for insert in _INSERT.finditer(text):
        labels = [label_of(name.strip(' `"[]\n\t')) for name in insert["names"].split(",")]
        place, count = insert.end(), 0
        while any(labels) and count < _MAX_ROWS and (row := _ROW.match(text, place)):
            for label, cell in zip(labels, _CELL.finditer(row["cells"]), strict=False):
                kind = cell.lastgroup
                if label and kind and kind != "bare" and not _may_stay(cell[kind]):
                    start = row.start("cells")
                    yield Span(start + cell.start(kind), start + cell.end(kind), label, "secret")
            place, count = row.end(), count + 1


def _may_stay(value: str) -> bool:
    """Return whether a cell is empty, a phrase, a placeholder or a short word, thus no secret."""
    if not value or is_usual_word(value) or is_stand_in(value):
        return True
    return " " in value or (is_plain(value) and value.isalpha() and len(value) < 5)


_LEAST = 20
_SIGN = r"[\w+/-]"  # of both alphabets
_LINES = "|".join(  # as programs break them
    rf"(?:{_SIGN}{{{size}}}\r?\n[ \t]{{0,12}}){{1,20000}}+{_SIGN}+" for size in (76, 64, 60)
)
_RUN = re.compile(rf"(?<!{_SIGN})(?:{_LINES}|{_SIGN}{{18,}}+)={{0,2}}", re.ASCII)
_LINE = re.compile(rf"{_SIGN}{{18,}}+={{0,2}}", re.ASCII)
_PART = re.compile(r"[\w+-]{18,}={0,2}", re.ASCII)
_NO_TEXT = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
_ORDINARY = str.maketrans("-_", "+/")
_BETWEEN = f"\n{HIDDEN}\n"


class Decoded:
    """The base64 parts of a text, decoded and joined so that no rule takes two for one."""

    def __init__(self, text: str) -> None:
        self._pieces = [*_pieces(text)]
        self.text = _BETWEEN.join(said for _, said in self._pieces)
        sizes = (len(said) + len(_BETWEEN) for _, said in self._pieces)
        self._starts = [*accumulate(sizes, initial=0)]

    def origins(self, spans: Iterable[Span]) -> Iterator[Span]:
        """Yield the whole base64 part for each finding in the decoded text."""
        for span in spans:
            first = bisect_right(self._starts, span.start) - 1
            last = bisect_right(self._starts, span.end - 1)
            for at, ((start, end), _) in enumerate(self._pieces[first:last], first):
                found = self.text[max(span.start, self._starts[at]) : span.end]
                if any(map(str.isalnum, found.partition(HIDDEN)[0])):
                    yield span._replace(start=start, end=end)


def _pieces(text: str) -> Iterator[tuple[tuple[int, int], str]]:
    """Yield the places of base64, decoded: a whole block, a line, or a part of a path."""
    for run in _RUN.finditer(text):
        if said := _said(run[0]):
            yield run.span(), said
            continue
        for line in _LINE.finditer(text, *run.span()):
            for part in [line] if _said(line[0]) else _PART.finditer(text, *line.span()):
                if said := _said(part[0]):
                    yield part.span(), said


def _said(encoded: str) -> str:
    signs = "".join(encoded.split()).rstrip("=").translate(_ORDINARY)
    if len(encoded) < _LEAST or len(signs) % 4 == 1:
        return ""
    data = base64.b64decode(signs + "=" * (-len(signs) % 4))
    try:  # what is cut off may end within a character
        said, _ = utf_8_decode(data) if any(data[1::2]) else utf_16_le_decode(data)
    except UnicodeDecodeError:
        return ""
    return "" if _NO_TEXT.search(said) else said


REACH = 4096
"""The maximum number of characters examined before a cut."""

_MARK = re.compile(r"…? ?\[cut: \d{1,12} characters in all\]")
_UNBROKEN = ascii_letters + digits + "!#$%&()*+,-./:;=?@[\\]^_{|}~"
_GROUPS = re.compile(r"(?:(?=[A-Za-z_+().-]{0,8}\d)[\w+().-]{1,17}+[ \u00a0]){1,10}+\Z", re.ASCII)
_LONGEST_GROUPS = 180
_CLOSED_BY = (
    *(('"', '"'), ("'", "'"), ("`", "`"), ('\\"', '\\"'), (">", "</")),
    (" ", "aa aa aa"),  # a phrase needs several words
)


def spans_at_cuts(indexed: IndexedText) -> Iterator[Span]:
    """Yield what stands before each cut, as far as it may be part of a torn value."""
    for mark in _MARK.finditer(indexed.text):
        before = indexed.text[max(0, mark.start() - REACH) : mark.start()]
        whole = before.rstrip(_UNBROKEN)
        groups = _GROUPS.search(whole[-_LONGEST_GROUPS:])
        size = len(before) - len(whole) + (len(groups[0]) if groups else 0)
        if size:
            yield Span(mark.start() - size, mark.start(), "cut", "secret")


def readings_of_cut(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield a place, the text from there to a cut, and what would close its open quote or tag."""
    for mark in _MARK.finditer(text, max(0, len(text) - 48)):
        start = max(0, mark.start() - REACH)
        before = text[start : mark.start()]
        if before.endswith(HIDDEN):  # the torn value is gone: it was read in the pass before
            return
        for opening, closing in _CLOSED_BY:
            if opening in before:
                yield start, before, closing
