"""Secrets that no rule finds: known from elsewhere, below a key, in a column, in base64, cut.

Valid JSON is walked instead. This covers the rest: JSON after a log prefix, JSON lines, truncated
JSON, ``NaN``, duplicate keys, a Python ``repr``.
"""

import base64
import re
from bisect import bisect_right
from codecs import utf_8_decode, utf_16_le_decode
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import accumulate, pairwise
from string import ascii_letters, digits
from typing import Final

from kp_middleware.privacy._reading import HIDDEN, is_counter, is_of_account, plain, plain_readings
from kp_middleware.privacy._rules import IndexedText
from kp_middleware.privacy._values import (
    Span,
    describes,
    is_plain,
    is_stand_in,
    is_strong,
    is_usual,
    is_usual_word,
    pattern,
)

_OPENS = re.compile(r"(?::|=>)\s{0,16}(?=[\[{(])")
_KEY_BEFORE = re.compile(r"""["']([^"'\\\n]{2,120})\\{0,7}["']\s{0,16}\Z""")
_KEY_SIZE = 160
_TOKEN = pattern("TOKEN")
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


_RULED, _LISTED, _ALIGNED = map(pattern, ("RULED", "LISTED", "ALIGNED"))
_INSERT, _ROW, _CELL = map(pattern, ("INSERT", "ROW", "CELL"))
_NAMES = ("pass", "pw", "secret", "token", "key", "cred")
_RULE = re.compile(r"[\s|:+=-]+")
_HEADING = re.compile(r"[\w .-]{1,60}")
_ALIGNED_CELL = re.compile(r"\S+(?: \S+)*")
_MAX_ROWS = 1000


def spans_in_columns(indexed: IndexedText, blanks: Callable[[str], str]) -> Iterator[Span]:
    """Yield the cells of columns for which ``blanks`` returns a label, except words."""
    if not any(name in indexed.lowered for name in _NAMES):
        return
    text = indexed.text

    def label_of(name: str) -> str:
        return blanks(name) if _HEADING.fullmatch(name) else ""

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
_OF_ONE_ALPHABET = str.maketrans("-_", "+/")
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
    signs = "".join(encoded.split()).rstrip("=").translate(_OF_ONE_ALPHABET)
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


LEAST: Final = 8
"""The minimum length in characters; shorter values occur too often by chance."""

_MOST: Final = 1_000
_LONGEST: Final = 4096
_PIECES: Final = 100
_TORN: Final = "cut"  # what stood before a cut is any word

_AROUND = " \t\r\n\"'`.,:;!?()[]{}<>\\"
_JOINTS = re.compile(r"[\s;,\"'`]+")
_NAMED = re.compile(r"[\w.-]{1,64}[=:](?P<rest>.*[^\W_].*)", re.DOTALL)
_USERINFO = re.compile(r"://[^\s/:@]{0,256}:(?P<password>\S{1,1024})@")
_ORDINARY = pattern("ORDINARY")
_HUMP = re.compile(r"[^\W\d_a-z]*[^\W\d_A-Z]+|[^\W\d_a-z]+")
_STRONG = re.compile(r"[^\W_][$#@!%^*]+[^\W_]")


class KnownSecrets:
    """The secrets redacted from a run, kept in memory to find them elsewhere in it.

    At most 1,000 values, each of 8 characters or more. A value that may also be a word, a date, a
    path or a version is not kept: it would redact much that is no secret.
    """

    def __init__(self) -> None:
        self._labels: dict[str, str] = {}
        self._index: _Index | None = None

    def __len__(self) -> int:
        return len(self._labels)

    def learn(self, value: str, label: str, may_stay: Callable[[str], bool]) -> None:
        """Add a secret in all its forms, except those for which ``may_stay`` is true."""
        if label == _TORN or len(value) < LEAST or value in self._labels:
            return
        for form in _forms(value):
            if len(self._labels) == _MOST:
                return
            if form not in self._labels and _is_one(form) and not may_stay(form):
                self._labels[form] = label
                self._index = None

    def label(self, value: str) -> str:
        """Return the label of a value that is a known secret, or an empty string."""
        return self._labels.get(value, "")

    def spans(self, text: str) -> Iterator[Span]:
        """Yield the known secrets in a text, however escaped; spans may overlap."""
        if not self._labels or len(text) < LEAST:
            return
        if self._index is None:
            self._index = _Index(self._labels)
        for reading in plain_readings(text):
            for start, value in self._index.places(reading.text):
                first, last = reading.origin(start, start + len(value))
                yield Span(first, last, self._labels[value], "secret")


class _Index:
    """An index that finds many values in a text at once.

    A value of eight characters holds five that begin at a multiple of four of the text, wherever
    it stands: only these are looked up.
    """

    _SIZE: Final = 5
    _STRIDE: Final = LEAST - _SIZE + 1

    def __init__(self, values: dict[str, str]) -> None:
        self._values = sorted(values)
        self._longest = max(map(len, values))
        self._mixed = frozenset(filter(alternates, values))
        self._offsets: dict[str, set[int]] = {}
        self._shorter: dict[str, str] = {}  # the longest other value that a value begins with
        shorter = ""
        for value in self._values:
            while not value.startswith(shorter):
                shorter = self._shorter[shorter]
            self._shorter[value] = shorter
            shorter = value
            for offset in range(self._STRIDE):
                self._offsets.setdefault(value[offset : offset + self._SIZE], set()).add(offset)

    def places(self, text: str) -> Iterator[tuple[int, str]]:
        offsets, size = self._offsets, self._SIZE
        for place in range(0, len(text) - size + 1, self._STRIDE):
            if text[place : place + size] in offsets:
                for offset in offsets[text[place : place + size]]:
                    if place >= offset and (value := self._value_at(text, place - offset)):
                        yield place - offset, value

    def _value_at(self, text: str, start: int) -> str:
        """Return the longest value that begins here and is not part of a longer word."""
        ahead = text[start : start + self._longest]
        at = bisect_right(self._values, ahead) - 1
        value = self._values[at] if at >= 0 else ""
        while value and not (ahead.startswith(value) and self._stands_alone(text, start, value)):
            value = self._shorter[value]
        return value

    def _stands_alone(self, text: str, start: int, value: str) -> bool:
        """Return whether a value is not part of a longer word, or too mixed for that to matter."""
        end = start + len(value)
        before, after = text[max(0, start - 1) : start], text[end : end + 1]
        torn = (before.isalnum() and value[0].isalnum()) or (
            after.isalnum() and value[-1].isalnum()
        )
        return not torn or value in self._mixed


def _forms(value: str) -> Iterator[str]:
    bytewise = value.encode(errors="replace").decode("latin-1")  # as escapes of a URL are read
    for form in dict.fromkeys((value, plain(value), bytewise)):
        if "; " not in form:  # a header of cookies, of which each by itself is one
            yield form
            yield form.strip(_AROUND)
        if password := _USERINFO.search(form):
            yield password["password"]
        for piece in _JOINTS.split(form, _PIECES)[:_PIECES]:
            yield from _parts(piece)


def _parts(piece: str) -> Iterator[str]:
    """Yield the secret part of ``sid=x`` and ``user:x``."""
    piece = piece.strip(_AROUND)
    if "://" in piece:
        return
    named = _NAMED.fullmatch(piece)
    part = named["rest"] if named else piece
    if any(map(str.isdigit, part)) and any(map(str.isalpha, part)):
        yield part
    if password := _after_colon(piece):
        yield password


def _after_colon(piece: str) -> str:
    """Return the password of ``user:password`` in base64, or an empty string."""
    if len(piece) < LEAST or len(piece) > 1024 or piece.isdecimal():
        return ""
    try:
        decoded = base64.b64decode(piece + "=" * (-len(piece) % 4), validate=True).decode()
    except ValueError:
        return ""
    return decoded.partition(":")[2] if decoded.isprintable() else ""


def _is_one(value: str) -> bool:
    """Return whether a value is distinctive enough not to occur by chance."""
    if not LEAST <= len(value) <= _LONGEST or HIDDEN in value or is_usual(value):
        return False
    ordinary = _ORDINARY.fullmatch(value)
    if ordinary is None:
        return any(map(str.isalnum, value))
    return ordinary["words"] is not None and _is_no_word(value)


def _is_no_word(value: str) -> bool:
    """Return whether letters have a symbol among them or capitals throughout."""
    return bool(_STRONG.search(value)) or len(value) < 3 * len(_HUMP.findall(value))


def alternates(value: str) -> bool:
    """Return whether letters and digits alternate as in nothing a person writes."""
    kinds = [character.isdigit() for character in value if character.isalnum()]
    return sum(a != b for a, b in pairwise(kinds)) >= max(3, 0.2 * len(kinds))
