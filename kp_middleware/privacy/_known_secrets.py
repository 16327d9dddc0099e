"""The known secrets of one run, redacted wherever else they occur in it."""

import base64
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Final

from kp_middleware.privacy._escapes import HIDDEN, plain, plain_readings
from kp_middleware.privacy._rules import Span
from kp_middleware.privacy._values import is_usual

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
_NAME = r"(?:[A-Za-z]++(?:\d++(?![A-Za-z]))?+|\d++(?![A-Za-z])|[@._-]++)++"  # of a file, of a host
_ORDINARY = re.compile(
    rf"""
    (?P<words>[\W_]{{0,3}}[^\W\d_]+(?:[\W_]{{1,3}}[^\W\d_]+)*[\W_]{{0,3}})
    | [^\W\d_]+(?:[-_./\ ](?:[^\W\d_]+|v?\d{{1,2}}[a-z]?))+  # eu-central-1, gpt-4o-mini
    | [a-z]+(?:\d|(?:19|20)\d\d|\d+(?:[.]\d+)+)                            # postgres1, python3.11
    | \d{{4}}[-/]\d\d[-/]\d\d(?:[T ][\d:.Z+-]*)? | \d\d?:\d\d[\d:.Z+-]*    # dates and times
    | [+-]?\d+[.,]\d+ | v?\d+(?:[.]\d+){{2,}}(?:[-+.]?[a-z]{{1,5}}\d{{0,4}})?  # numbers, versions
    | (?:~|[.]{{1,2}}|[A-Za-z]:)?[/\\](?:{_NAME}[/\\]+)+(?:{_NAME})?         # paths
    | [a-z]{{3,5}}://{_NAME}(?::\d{{1,5}})?(?:/{_NAME})*/?                    # addresses
    | [\w.+-]+@[\w-]+(?:[.][\w-]+)*[.][A-Za-z]{{2,}}
    """,
    re.VERBOSE,
)
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
